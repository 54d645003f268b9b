"""Small models of Keras 3 as tf2onnx writes them: keras_models.py OUT. No test runs this; it needs tensorflow-cpu and tf2onnx."""

import os
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import keras  # noqa: E402
import tensorflow as tf  # noqa: E402
import tf2onnx  # noqa: E402

K, WIDTH, HEADS = keras.layers, 64, 4


def gelu(x):
    """Keras' own is an op Erfc in tf2onnx, which ONNX does not have."""
    return 0.5 * x * (1.0 + tf.math.erf(x * 0.70710678))


def block(x, mask=None, causal=False, pre=False, others=None, groups=None):
    norm = lambda t: K.LayerNormalization(epsilon=1e-6)(t)
    y = norm(x) if pre else x
    attention = K.GroupQueryAttention(WIDTH // HEADS, HEADS, groups) if groups else K.MultiHeadAttention(HEADS, WIDTH // HEADS)
    x = K.Add()([x, attention(y, y if others is None else others, attention_mask=mask, use_causal_mask=causal)])
    x = x if pre else norm(x)
    x = K.Add()([x, K.Dense(WIDTH)(K.Dense(2 * WIDTH, activation=gelu)(norm(x) if pre else x))])
    return x if pre else norm(x)


def encoder(**how):
    x = y = keras.Input((None, WIDTH))
    return keras.Model(x, block(block(y, **how), **how))


def masked():
    x, mask = keras.Input((None, WIDTH)), keras.Input((None, None), dtype="bool")
    return keras.Model([x, mask], block(block(x, mask=mask), mask=mask))


def cross():
    x, y = keras.Input((None, WIDTH)), keras.Input((None, WIDTH))
    return keras.Model([x, y], block(block(x, causal=True), others=block(y)))


def vit():
    x = keras.Input((32, 32, 3))
    y = K.Reshape((16, WIDTH))(K.Conv2D(WIDTH, 8, 8)(x))
    return keras.Model(x, K.GlobalAveragePooling1D()(block(block(y, pre=True), pre=True)))


def bert():
    ids = keras.Input((None,), dtype="int32")
    mask = K.Lambda(lambda t: (t > 0)[:, None, :], output_shape=lambda s: (s[0], 1, s[1]))(ids)
    return keras.Model(ids, block(block(K.Embedding(100, WIDTH)(ids), mask=mask), mask=mask))


def dot_attention():
    x = keras.Input((None, WIDTH))
    return keras.Model(x, K.Attention()([K.Dense(WIDTH)(x), K.Dense(WIDTH)(x), K.Dense(WIDTH)(x)]))


MODELS = {"post": encoder, "pre": lambda: encoder(pre=True), "causal": lambda: encoder(causal=True), "groups": lambda: encoder(groups=2),
          "masked": masked, "cross": cross, "vit": vit, "bert": bert, "dot_attention": dot_attention}


def main(out):
    os.makedirs(out, exist_ok=True)
    for name, make in MODELS.items():
        for opset in (13, 17):
            model = make()
            signature = [tf.TensorSpec([None, *t.shape[1:]], t.dtype, name=f"x{i}") for i, t in enumerate(model.inputs)]
            run = tf.function(lambda *x: model(list(x) if len(x) > 1 else x[0], training=False), input_signature=signature)
            tf2onnx.convert.from_function(run, input_signature=signature, opset=opset, output_path=f"{out}/keras_{name}.op{opset}.onnx")


if __name__ == "__main__":
    main(sys.argv[1])
