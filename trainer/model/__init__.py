"""The model: a GPT as a flat list of layers, each of which takes one tensor and returns one.

A pipeline divides the list into stages. Layers know the tensor axis over which they are sharded, and
nothing of pipelines, data parallelism, optimizers or DeepSpeed. They are built without values;
`trainer.parallel.parameters` has the initial ones.
"""
