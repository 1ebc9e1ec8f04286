"""Run signatures of SavedModels in a process that has TensorFlow and nothing of ours.

Usage: serve_with_tensorflow.py REQUESTS.npz ANSWERS.npz

REQUESTS holds arrays named `<number>|<model directory>|<signature>|<argument>`, encoded pictures
as base64 (numpy drops zeros at the end of bytes). ANSWERS will hold `<number>|<output>`, or
`<number>|error` with the message.
"""

import base64
import sys

import numpy as np
import tensorflow as tf

models, answers = {}, {}
for key, value in np.load(sys.argv[1]).items():
    number, directory, signature, argument = key.split("|")
    if directory not in models:
        models[directory] = tf.saved_model.load(directory)
    if argument == "encoded":
        value = [base64.b64decode(one) for one in value]
    try:
        outputs = models[directory].signatures[signature](**{argument: tf.constant(value)})
    except tf.errors.InvalidArgumentError as error:
        answers[f"{number}|error"] = np.array(error.message.encode())
        continue
    for name, output in outputs.items():
        output = output.numpy()
        answers[f"{number}|{name}"] = output.astype("S") if output.dtype == object else output
if "keras_vit" in sys.modules:
    raise SystemExit("keras_vit was imported")
np.savez(sys.argv[2], **answers)
