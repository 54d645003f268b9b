"""Small models of Paddle as paddle2onnx writes them: paddle_models.py OUT. No test runs this; it needs paddlepaddle and paddle2onnx."""

import os
import sys

import paddle
import paddle.nn as nn
import paddle.nn.functional as F

WIDTH, HEADS, LAYERS = 64, 4, 2


def encoder(pre, activation):
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.0, activation=activation, normalize_before=pre), LAYERS)


class Encoder(nn.Layer):
    def __init__(self, pre=False, activation="gelu"):
        super().__init__()
        self.encoder = encoder(pre, activation)

    def forward(self, x):
        return self.encoder(x)


class Masked(Encoder):
    def forward(self, x, mask):
        return self.encoder(x, mask)


class Ernie(nn.Layer):
    """Embeddings, a mask of padding, a pooler, as ERNIE has them."""

    def __init__(self):
        super().__init__()
        self.words, self.places, self.types = nn.Embedding(100, WIDTH), nn.Embedding(64, WIDTH), nn.Embedding(2, WIDTH)
        self.norm, self.encoder, self.pooler = nn.LayerNorm(WIDTH), encoder(False, "gelu"), nn.Linear(WIDTH, WIDTH)

    def forward(self, ids, types):
        mask = paddle.unsqueeze((ids == 0).astype("float32") * -1e4, axis=[1, 2])
        places = paddle.cumsum(paddle.ones_like(ids), axis=-1) - 1
        y = self.encoder(self.norm(self.words(ids) + self.places(places) + self.types(types)), mask)
        return y, paddle.tanh(self.pooler(y[:, 0]))


class Gpt(nn.Layer):
    def __init__(self):
        super().__init__()
        self.words, self.encoder = nn.Embedding(100, WIDTH), encoder(True, "gelu")

    def forward(self, ids):
        n = paddle.shape(ids)[1]
        return F.linear(self.encoder(self.words(ids), paddle.tensor.triu(paddle.ones([n, n]) * -1e9, 1)), self.words.weight.t())


class Translator(nn.Layer):
    def __init__(self):
        super().__init__()
        self.transformer = nn.Transformer(WIDTH, HEADS, LAYERS, LAYERS, 2 * WIDTH, dropout=0.0)

    def forward(self, source, target):
        return self.transformer(source, target)


class Vit(nn.Layer):
    """Patches, one projection for q, k and v, attention by hand."""

    def __init__(self, sdpa):
        super().__init__()
        many = lambda n, make: nn.LayerList([make() for _ in range(n)])
        self.sdpa, self.patches = sdpa, nn.Conv2D(3, WIDTH, 8, 8)
        self.qkv, self.out = many(LAYERS, lambda: nn.Linear(WIDTH, 3 * WIDTH)), many(LAYERS, lambda: nn.Linear(WIDTH, WIDTH))
        self.norms = many(LAYERS, lambda: nn.LayerNorm(WIDTH))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose([0, 2, 1])
        for qkv, out, norm in zip(self.qkv, self.out, self.norms):
            y = qkv(norm(x)).reshape([-1, 16, 3, HEADS, WIDTH // HEADS])
            if self.sdpa:
                a = F.scaled_dot_product_attention(y[:, :, 0], y[:, :, 1], y[:, :, 2])
            else:
                q, k, v = y.transpose([2, 0, 3, 1, 4]).unbind(0)
                a = F.softmax(q.matmul(k.transpose([0, 1, 3, 2])) * (WIDTH // HEADS) ** -0.5, -1).matmul(v).transpose([0, 2, 1, 3])
            x = x + out(a.reshape([-1, 16, WIDTH]))
        return x


def main(out):
    floats, ints = (lambda *s: paddle.static.InputSpec(list(s), "float32")), (lambda *s: paddle.static.InputSpec(list(s), "int64"))
    x, ids, image = (lambda: floats(None, None, WIDTH)), (lambda: ints(None, None)), (lambda: floats(None, 3, 32, 32))  # each names one input
    models = {"post": (Encoder(), [x()]), "pre": (Encoder(True), [x()]), "relu": (Encoder(False, "relu"), [x()]),
              "masked": (Masked(), [x(), floats(None, 1, None, None)]), "ernie": (Ernie(), [ids(), ids()]), "gpt": (Gpt(), [ids()]),
              "translator": (Translator(), [x(), x()]), "vit": (Vit(False), [image()]), "vit_sdpa": (Vit(True), [image()])}
    os.makedirs(out, exist_ok=True)
    for name, (model, inputs) in models.items():
        for opset in (11, 17):
            model.eval()
            paddle.onnx.export(model, f"{out}/paddle_{name}.op{opset}", input_spec=inputs, opset_version=opset)


if __name__ == "__main__":
    main(sys.argv[1])
