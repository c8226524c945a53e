"""Logistic regression with TensorFlow's ParameterServerStrategy, for failover.py: the roles chief, worker and ps
in one program. TF_CONFIG says which one, and which cluster.

    TF_CONFIG=... python failover_tf.py DATA PASSES BATCH RATE KEYS CHECKPOINTS

DATA has lines of libsvm with the ids 1 to KEYS - 1, each with the value 1. Id 0 is the intercept. The weights are one
variable that is partitioned over the ps. A step looks up the weights of a batch (tf.nn.embedding_lookup), and subtracts
RATE times the sums of the gradients (IndexedSlices) from them. TensorFlow does not promise that each record of a
dataset is visited. So the chief names the batch of each step, and each worker has all of the data. A second variable
counts how often each batch was trained; it is in the checkpoints too.

The loop and the checkpoints follow TensorFlow's tutorial on parameter server training: the chief schedules steps,
joins, and saves after each pass. A chief that finds a checkpoint goes on with the pass after it. It prints START and
the records that the checkpoint has, DONE and the records trained so far, and in the end COUNTED and LOSS.
"""
import os
import sys

# The tutorial asks for this on every task, so that failures are reported.
os.environ["GRPC_FAIL_FAST"] = "use_caller"
import numpy as np
import tensorflow as tf

CHUNK = 20


def read(path):
    """The ids of all records with the intercept, and their labels."""
    with open(path) as file:
        lines = file.read()
    fields = len(lines[:lines.index("\n")].split())
    table = np.array(lines.replace(":1", "").split(), dtype=np.int32).reshape(-1, fields)
    labels = table[:, 0].astype(np.float32)
    table[:, 0] = 0
    return table, labels


def logloss(ids, labels, weights):
    margins = weights[ids].sum(1, dtype=np.float64)
    return float(np.mean(np.logaddexp(0, margins) - margins * labels))


def chief(resolver, data, passes, batch, rate, keys, folder):
    ids, labels = read(data)
    batches = -(-len(labels) // batch)
    sizes = np.array([min(batch, len(labels) - first) for first in range(0, len(labels), batch)])
    ps = len(resolver.cluster_spec().as_dict()["ps"])
    partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(ps)
    strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable(tf.zeros([keys]), name="weights")
        counts = tf.Variable(tf.zeros([batches], tf.int32), trainable=False, name="counts")
        done = tf.Variable(0, trainable=False, name="done")
    checkpoint = tf.train.Checkpoint(weights=weights, counts=counts, done=done)
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=3)
    if manager.latest_checkpoint:
        checkpoint.restore(manager.latest_checkpoint).assert_existing_objects_matched()

    def dataset():
        return tf.data.Dataset.from_tensors((ids, labels)).repeat()

    @tf.function
    def step(iterator, number):
        all_ids, all_labels = next(iterator)
        own = slice(number * batch, (number + 1) * batch)
        with tf.GradientTape() as tape:
            margins = tf.reduce_sum(tf.nn.embedding_lookup(weights, all_ids[own]), 1)
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=all_labels[own], logits=margins)
            loss = tf.reduce_sum(losses)
        for shard, gradient in zip(weights.variables, tape.gradient(loss, weights.variables)):
            shard.scatter_sub(tf.IndexedSlices(rate * gradient.values, gradient.indices))
        counts.scatter_add(tf.IndexedSlices(tf.constant([1]), tf.reshape(number, [1])))

    iterator = iter(coordinator.create_per_worker_dataset(dataset))
    first = int(done.numpy())
    records = first * len(labels)
    print("START", records, flush=True)
    for number in range(first, passes):
        for begin in range(0, batches, CHUNK):
            end = min(batches, begin + CHUNK)
            for at in range(begin, end):
                coordinator.schedule(step, args=(iterator, tf.constant(at)))
            coordinator.join()
            records += int(sizes[begin:end].sum())
            print("DONE", records, flush=True)
        done.assign(number + 1)
        manager.save()
    whole = lambda variable: np.concatenate([shard.numpy() for shard in variable.variables])
    print("COUNTED", int((whole(counts) * sizes).sum()), flush=True)
    print("LOSS", f"{logloss(ids, labels, whole(weights)):.6f}", flush=True)


def main():
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type == "chief":
        data, passes, batch, rate, keys, folder = sys.argv[1:]
        chief(resolver, data, int(passes), int(batch), float(rate), int(keys), folder)
        # The servers go on; without this the end of the process waits for them.
        os._exit(0)
    server = tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id,
                                  protocol="grpc", start=True)
    print("STARTED", flush=True)
    server.join()


if __name__ == "__main__":
    main()
