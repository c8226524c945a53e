#!/usr/bin/env python3
"""Writes optim/tests/reference/*.csv: steps of a well-known implementation that the rules are checked against.

The implementation is TensorFlow's own kernels (float64 on the CPU; tensorflow-cpu 2.21.0 made the committed files):
  sgd      ResourceApplyGradientDescent   var -= alpha * g
  adagrad  ResourceApplyAdagradV2         accum += g^2; var -= lr * g / (sqrt(accum) + epsilon)
  ftrl     ResourceApplyFtrl              lr_power -0.5. Its objective has l2 * w^2 where McMahan et al. 2013 have
           l2 / 2 * w^2, and no beta, which acts like more l2: tensorflow_l2 = (l2 + beta / alpha) / 2.

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


START = [0.5 * (-1) ** j * j for j in range(DIM)]
OUT.mkdir(parents=True, exist_ok=True)
sgd("sgd", 0.05)
adagrad("adagrad", 0.1, 1e-10, 0.0)
adagrad("adagrad_initial", 0.05, 0.01, 0.1)
ftrl("ftrl", 0.1, 1.0, 0.0, 0.0)
ftrl("ftrl_l1_l2", 0.3, 0.5, 0.7, 1.5)
