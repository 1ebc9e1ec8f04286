"""Name and shape of every variable of a model, from its configuration alone."""

import math

from keras_vit.config import MixerConfig, ModelConfig, ViTConfig

Shapes = dict[str, tuple[int, ...]]


def variable_shapes(config: ModelConfig) -> Shapes:
    """Return the shape of every variable of the model, by path."""
    if isinstance(config, MixerConfig):
        return _mixer(config)
    return _vit(config)


def count_parameters(config: ModelConfig) -> int:
    """Return how many numbers the weights of a model hold, without building it.

    Args:
        config: The architecture.

    Example:

    >>> count_parameters(VARIANTS["B/16"])
    86567656
    """
    return sum(math.prod(shape) for shape in variable_shapes(config).values())


def _vit(config: ViTConfig) -> Shapes:
    dim, stem = config.hidden_dim, config.stem_layers
    shapes = {} if stem is None else _stem(config)
    channels = config.num_channels
    if stem is not None:
        channels = config.stem_width * (2 ** (1 + len(stem)) if stem else 1)
    shapes["patch_embedding/projection/kernel"] = (*config.patch_size, channels, dim)
    if config.patch_bias:
        shapes["patch_embedding/projection/bias"] = (dim,)
    for name, count in (
        ("class_token", config.class_token),
        ("distillation_token", config.distillation_token),
        ("register_tokens", config.num_register_tokens),
    ):
        if count:
            shapes[f"prefix_tokens/{name}"] = (int(count), dim)
    is_own = config.position_insertion == "every_block"
    for i in range(config.num_layers if is_own else 1):
        shapes |= _positions(config, f"position_embedding_{i}" if i else "position_embedding")
    if config.embedding_norm:
        shapes |= _norm("embedding_norm", dim)
    for i in range(config.num_layers):
        for part in ("/row", "/column") if config.axial else ("",):
            shapes |= _block(config, f"block_{i}{part}")
    if config.final_norm == "encoder":
        shapes |= _norm("encoder_norm", dim)
    if config.pool == "map":
        shapes |= _attention_pool(config)
    if config.final_norm == "pool":
        shapes |= _norm("pool_norm", config.pooled_dim)
    features = config.representation_size or config.pooled_dim
    if config.representation_size:
        has_bias = config.representation == "tanh"
        shapes |= _dense("pre_logits", config.pooled_dim, features, bias=has_bias)
    if config.num_classes:
        heads = ("class", "distillation") if config.distillation_token else ("",)
        for head in heads:
            shapes |= _dense(f"head/{head}".rstrip("/"), features, config.num_classes)
    return shapes


def _stem(config: ViTConfig) -> Shapes:
    width = config.stem_width
    shapes = {"resnet_stem/root/kernel": (7, 7, config.num_channels, width)}
    shapes |= _norm("resnet_stem/root_norm", width)
    inputs = width
    for stage, units in enumerate(config.stem_layers):
        inner, outputs = width * 2**stage, 4 * width * 2**stage
        for unit in range(units):
            path = f"resnet_stem/stage_{stage}/unit_{unit}"
            shapes[f"{path}/conv1/kernel"] = (1, 1, inputs, inner)
            shapes |= _norm(f"{path}/norm1", inner)
            shapes[f"{path}/conv2/kernel"] = (3, 3, inner, inner)
            shapes |= _norm(f"{path}/norm2", inner)
            shapes[f"{path}/conv3/kernel"] = (1, 1, inner, outputs)
            shapes |= _norm(f"{path}/norm3", outputs)
            if unit == 0:
                shapes[f"{path}/shortcut/kernel"] = (1, 1, inputs, outputs)
                shapes |= _norm(f"{path}/shortcut_norm", outputs)
            inputs = outputs
    return shapes


def _positions(config: ViTConfig, path: str) -> Shapes:
    dim, (height, width) = config.hidden_dim, config.grid
    if config.position_embedding == "learned":
        return {f"{path}/embeddings": (config.num_positions, dim)}
    if config.position_embedding == "learned_2d":
        return {
            f"{path}/row_embeddings": (height, dim // 2),
            f"{path}/column_embeddings": (width, dim // 2),
        }
    return {}


def _block(config: ViTConfig, path: str) -> Shapes:
    dim, head_dim = config.hidden_dim, config.hidden_dim // config.num_heads
    shapes = _norm(f"{path}/norm1", dim)
    shapes |= _dense(f"{path}/attention/qkv", dim, 3 * dim, bias=config.qkv_bias)
    if config.qk_norm:
        shapes |= _norm(f"{path}/attention/query_norm", head_dim)
        shapes |= _norm(f"{path}/attention/key_norm", head_dim)
    if config.position_embedding == "relative":
        shapes[f"{path}/attention/relative_keys"] = (2 * config.num_tokens - 1, head_dim)
    shapes |= _dense(f"{path}/attention/proj", dim, dim)
    shapes |= _norm(f"{path}/norm2", dim)
    shapes |= _mlp(f"{path}/mlp", dim, config.mlp_dim, config.gated_mlp)
    if config.layer_scale_init is not None:
        shapes |= {f"{path}/layer_scale{branch}/gamma": (dim,) for branch in (1, 2)}
    return shapes


def _attention_pool(config: ViTConfig) -> Shapes:
    dim = config.hidden_dim
    shapes = {"pool/probe": (1, dim)}
    shapes |= _dense("pool/query", dim, dim)
    shapes |= _dense("pool/key_value", dim, 2 * dim)
    shapes |= _dense("pool/proj", dim, dim)
    shapes |= _norm("pool/norm", dim)
    return shapes | _mlp("pool/mlp", dim, config.mlp_dim, config.gated_mlp)


def _mixer(config: MixerConfig) -> Shapes:
    dim = config.hidden_dim
    shapes = {
        "patch_embedding/projection/kernel": (*config.patch_size, config.num_channels, dim),
        "patch_embedding/projection/bias": (dim,),
    }
    for i in range(config.num_layers):
        shapes |= _norm(f"block_{i}/norm1", dim)
        shapes |= _mlp(f"block_{i}/token_mixing", config.num_tokens, config.tokens_mlp_dim)
        shapes |= _norm(f"block_{i}/norm2", dim)
        shapes |= _mlp(f"block_{i}/channel_mixing", dim, config.channels_mlp_dim)
    shapes |= _norm("encoder_norm", dim)
    return shapes | _dense("head", dim, config.num_classes) if config.num_classes else shapes


def _norm(path: str, width: int) -> Shapes:
    return {f"{path}/gamma": (width,), f"{path}/beta": (width,)}


def _dense(path: str, inputs: int, outputs: int, bias: bool = True) -> Shapes:
    shapes = {f"{path}/kernel": (inputs, outputs)}
    return shapes | {f"{path}/bias": (outputs,)} if bias else shapes


def _mlp(path: str, width: int, hidden: int, is_gated: bool = False) -> Shapes:
    fc1 = _dense(f"{path}/fc1", width, 2 * hidden if is_gated else hidden)
    return fc1 | _dense(f"{path}/fc2", hidden, width)
