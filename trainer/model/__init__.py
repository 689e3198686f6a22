"""The model: a GPT as a flat list of layers, each of which takes one tensor and returns one.

The list is what a pipeline cuts into stages. Layers know the tensor axis they are spread over and
nothing of pipelines, data parallelism, optimizers or DeepSpeed. They are made without values;
`trainer.parallel.parameters` fills them.
"""
