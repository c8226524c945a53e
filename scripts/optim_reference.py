#!/usr/bin/env python3
"""Writes optim/tests/reference/*.csv: steps of a well-known implementation, with which the tests compare the rules.

The implementation is TensorFlow's own kernels (float64 on the CPU; tensorflow-cpu 2.21.0 made the committed files):
  sgd      ResourceApplyGradientDescent   var -= alpha * g
  adagrad  ResourceApplyAdagradV2         accum += g^2; var -= lr * g / (sqrt(accum) + epsilon)
  ftrl     ResourceApplyFtrl              lr_power -0.5. Its objective has l2 * w^2 where McMahan et al. 2013 have
           l2 / 2 * w^2, and no beta, which acts like more l2: tensorflow_l2 = (l2 + beta / alpha) / 2.
  momentum ResourceApplyMomentum          accum = accum * momentum + g; var -= lr * accum, or, with use_nesterov,
           lr * (g + momentum * accum)
  rmsprop  ResourceApplyRMSProp           momentum 0: ms += (g^2 - ms) * (1 - rho); var -= lr * g / sqrt(ms + epsilon)
  adam     ResourceApplyAdam              with the decay of Keras's AdamW before it: var -= var * decay * lr
  amsgrad  ResourceApplyAdamWithAmsgrad
  row_adagrad  the mean of g^2 over the row is added to one accumulator (torchrec's RowWiseAdagrad; TensorFlow has none);
           the step is ResourceApplyAdagradV2 with update_slots=False

Every case: DIM coordinates, STEPS steps; each coordinate's gradients have a scale of their own from 1e-3 to 30, some
are zero. A line of the file: step, coordinate, gradient, then the state after that step. The gradients are float32
values, the same for every rule.

    pip install tensorflow-cpu==2.21.0
    python scripts/optim_reference.py
"""
import csv
import pathlib
import random
import struct

import tensorflow as tf

DIM, STEPS = 7, 24
OUT = pathlib.Path(__file__).resolve().parent.parent / "optim" / "tests" / "reference"
op = tf.raw_ops


def f32(x):
    """The float32 nearest to x."""
    return struct.unpack("f", struct.pack("f", x))[0]


def gradients():
    rng = random.Random(2013)
    scale = [10 ** (-3 + 4.5 * j / (DIM - 1)) for j in range(DIM)]
    return [[0.0 if rng.random() < 0.15 else f32(rng.gauss(0.3, 1.0) * s) for s in scale] for _ in range(STEPS)]


def variable(values):
    return tf.Variable(tf.constant(values, tf.float64))


def double(x):
    """A hyper-parameter as the Rust side has it: the float32, in double precision."""
    return tf.constant(f32(x), tf.float64)


def run(name, columns, planes, step):
    with open(OUT / f"{name}.csv", "w", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(["step", "coordinate", "gradient", *columns])
        for t, g in enumerate(gradients()):
            step(tf.constant(g, tf.float64))
            state = [p.numpy() for p in planes]
            for j in range(DIM):
                out.writerow([t, j, repr(float(g[j])), *(repr(float(s[j])) for s in state)])


def sgd(name, lr):
    w = variable(START)
    run(name, ["w"], [w], lambda g: op.ResourceApplyGradientDescent(var=w.handle, alpha=double(lr), delta=g))


def adagrad(name, lr, eps, initial):
    w, s = variable(START), variable([f32(initial)] * DIM)
    run(name, ["w", "s"], [w, s], lambda g: op.ResourceApplyAdagradV2(
        var=w.handle, accum=s.handle, lr=double(lr), epsilon=double(eps), grad=g))


def ftrl(name, alpha, beta, l1, l2):
    w, n, z = variable([0.0] * DIM), variable([0.0] * DIM), variable([0.0] * DIM)
    l2 = (double(l2) + double(beta) / double(alpha)) / 2
    run(name, ["z", "n", "w"], [z, n, w], lambda g: op.ResourceApplyFtrl(
        var=w.handle, accum=n.handle, linear=z.handle, grad=g, lr=double(alpha), l1=double(l1), l2=l2,
        lr_power=tf.constant(-0.5, tf.float64)))


def momentum(name, lr, past, nesterov):
    w, m = variable(START), variable([0.0] * DIM)
    run(name, ["w", "m"], [w, m], lambda g: op.ResourceApplyMomentum(
        var=w.handle, accum=m.handle, lr=double(lr), grad=g, momentum=double(past), use_nesterov=nesterov))


def rmsprop(name, lr, rho, eps):
    w, s, unused = variable(START), variable([0.0] * DIM), variable([0.0] * DIM)
    run(name, ["w", "s"], [w, s], lambda g: op.ResourceApplyRMSProp(
        var=w.handle, ms=s.handle, mom=unused.handle, lr=double(lr), rho=double(rho), momentum=double(0.0),
        epsilon=double(eps), grad=g))


def adam(name, lr, beta1, beta2, eps, decay, amsgrad=False):
    w, m, v, h = variable(START), variable([0.0] * DIM), variable([0.0] * DIM), variable([0.0] * DIM)
    powers = [double(1.0), double(1.0)]

    def step(g):
        powers[0] *= double(beta1)
        powers[1] *= double(beta2)
        w.assign_sub(w * double(decay) * double(lr))
        common = dict(var=w.handle, m=m.handle, v=v.handle, beta1_power=powers[0], beta2_power=powers[1],
                      lr=double(lr), beta1=double(beta1), beta2=double(beta2), epsilon=double(eps), grad=g)
        op.ResourceApplyAdamWithAmsgrad(vhat=h.handle, **common) if amsgrad else op.ResourceApplyAdam(**common)

    run(name, ["w", "m", "v"] + ["h"] * amsgrad, [w, m, v] + [h] * amsgrad, step)


def row_adagrad(name, lr, eps, initial):
    w, s = variable(START), variable([f32(initial)] * DIM)

    def step(g):
        s.assign_add(tf.fill([DIM], tf.reduce_mean(g * g)))
        op.ResourceApplyAdagradV2(
            var=w.handle, accum=s.handle, lr=double(lr), epsilon=double(eps), grad=g, update_slots=False)

    # Every coordinate of the row has the same accumulator.
    run(name, ["w", "s"], [w, s], step)


START = [0.5 * (-1) ** j * j for j in range(DIM)]
OUT.mkdir(parents=True, exist_ok=True)
sgd("sgd", 0.05)
adagrad("adagrad", 0.1, 1e-10, 0.0)
adagrad("adagrad_initial", 0.05, 0.01, 0.1)
ftrl("ftrl", 0.1, 1.0, 0.0, 0.0)
ftrl("ftrl_l1_l2", 0.3, 0.5, 0.7, 1.5)
momentum("momentum", 0.05, 0.9, False)
momentum("nesterov", 0.02, 0.75, True)
rmsprop("rmsprop", 0.05, 0.9, 1e-7)
adam("adam", 0.1, 0.9, 0.999, 1e-8, 0.0)
adam("adamw", 0.05, 0.8, 0.95, 1e-4, 0.25)
adam("amsgrad", 0.05, 0.8, 0.75, 1e-6, 0.125, amsgrad=True)
row_adagrad("row_adagrad", 0.1, 1e-6, 0.1)
