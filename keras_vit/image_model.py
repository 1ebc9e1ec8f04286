"""What every model here has in common: pictures in, logits or features out."""

import dataclasses
import os
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import keras

from keras_vit import lora
from keras_vit import preprocessing as pixels
from keras_vit.assembly import MadeLayer, assemble
from keras_vit.checks import as_labels, unknown_name
from keras_vit.config import ModelConfig, PreprocessingConfig
from keras_vit.layers.backend import is_tensorflow_on_cpu
from keras_vit.layers.dtype_policy import nested_dtype_policy
from keras_vit.layers.initializers import ReadWeights
from keras_vit.layers.spelling import spelled
from keras_vit.parts import freeze_other_parts, freeze_paths, frozen_paths, layers_by_part


class ImageModel(keras.Model):
    """A functional Keras model built from a configuration.

    `summary`, `get_layer`, `fit`, `.keras` files, quantization and export work as on any other.

    Args:
        config: The architecture.
        preprocessing: How pictures become this model's pixels; `mean` and `std` are applied
            inside the model.
        labels: One name a class, or None.
        include_normalization: False leaves `mean` and `std` to the caller.
        multi_label: Whether a picture may have several classes, so that probabilities are
            sigmoids of the logits and not their softmax.
        origin: Where the weights come from, as JSON values, or None.
        read_weights: Takes a variable's path and shape and returns its first value, or None
            for the official initializer. Called once a variable, while building.
        share: Layers of another model by name, to use where this one's would be equal.
        dtype: Policy of all layers, as in Keras. Normalization and head stay float32.
        name: Name of the model; None for that of the class, in lower case.
        **kwargs: `trainable`, as in `keras.Model`.
    """

    config_class: ClassVar[type]
    variants: ClassVar[dict[str, ModelConfig]]

    def __init__(
        self,
        config: ModelConfig,
        preprocessing: PreprocessingConfig | None = None,
        labels: Iterable[str] | None = None,
        include_normalization: bool = True,
        multi_label: bool = False,
        origin: dict[str, Any] | None = None,
        read_weights: ReadWeights | None = None,
        share: dict[str, MadeLayer] | None = None,
        dtype: Any = None,
        name: str | None = None,
        **kwargs,
    ):
        if not isinstance(config, self.config_class):
            raise ValueError(
                f"`config` must be a `keras_vit.{self.config_class.__name__}`. "
                f"Received: {type(config).__name__}."
            )
        preprocessing = (preprocessing or PreprocessingConfig()).for_channels(config.num_channels)
        policy = keras.dtype_policies.get(dtype)
        is_quantized = isinstance(policy, keras.dtype_policies.QuantizedDTypePolicy)
        if "float" not in policy.compute_dtype or is_quantized:
            raise ValueError(
                f"`dtype` must be a floating point policy. Received: dtype={dtype!r}. Try "
                "'float32', 'mixed_bfloat16' or 'mixed_float16'; int8 comes by `model.quantize`."
            )
        inputs = keras.Input((*config.image_size, config.num_channels), name="images")
        layers = self._make_layers(config, preprocessing if include_normalization else None, policy)
        assembly = assemble(layers, inputs, share, read_weights)
        name = name or type(self).__name__.lower()
        super().__init__(inputs=inputs, outputs=assembly.outputs, name=name, **kwargs)
        self.dtype_policy = policy
        self.config = config
        self.preprocessing = preprocessing
        self.include_normalization = include_normalization
        self.multi_label = multi_label
        self.origin = origin
        self.labels = labels
        self._views = assembly.views
        self._entering = assembly.entering
        self._made = assembly.made
        self._relatives = weakref.WeakSet([self])

    @staticmethod
    def _make_layers(
        config: ModelConfig, statistics: PreprocessingConfig | None, policy: keras.DTypePolicy
    ) -> Iterator[keras.layers.Layer]:
        """The layers of one model, input first, under their fixed names.

        Args:
            config: The architecture.
            statistics: Whose `mean` and `std` the first layer applies, or None for no such layer.
            policy: Of the layers.
        """
        raise NotImplementedError

    @classmethod
    def from_variant(cls, name: str, *, dtype: Any = None, **fields) -> "ImageModel":
        """A model of a named size, freshly initialised.

        Args:
            name: A key of the table of variants, e.g. `"B/16"`.
            dtype: Policy of all layers, as in Keras.
            **fields: Fields of the configuration to replace, e.g. `num_classes=10`.

        Raises:
            ValueError: If the name or a field is unknown.
        """
        if name not in cls.variants:
            raise unknown_name("variant", name, cls.variants)
        known = [field.name for field in dataclasses.fields(cls.config_class)]
        for field in fields:
            if field not in known:
                raise unknown_name(f"field of `{cls.config_class.__name__}`", field, known)
        return cls(dataclasses.replace(cls.variants[name], **fields), dtype=dtype)

    @property
    def labels(self) -> tuple[str, ...] | None:
        """One name a class, or None."""
        return self._labels

    @labels.setter
    def labels(self, labels: Iterable[str] | None):
        self._labels = as_labels(labels, self.config.num_classes)

    def preprocess(self, images: Any) -> Any:
        """Make any pictures this model's input: resized by its checkpoint's rule, 0..255.

        Args:
            images: One picture or many, as `keras_vit.preprocessing.preprocess` takes them.

        Returns:
            float32 `(batch, height, width, channels)`.
        """
        return pixels.preprocess(
            images, self.preprocessing, self.config.image_size, self.config.num_channels
        )

    def probabilities(self, logits: Any) -> Any:
        """Softmax of `(batch, num_classes)` logits, or sigmoid of each with `multi_label`."""
        return keras.ops.sigmoid(logits) if self.multi_label else keras.ops.softmax(logits)

    def intermediates(self, names: Iterable[str]) -> keras.Model:
        """A model that shares these weights and returns what flows inside, by name.

        Args:
            names: Any of `"embeddings"` (after the positions), `"block_0"` ... (after that
                block), `"encoder_norm"`, `"pooled"` (the vector that the head takes),
                `"pre_logits"`, `"logits"`, as far as the model has them.

        Returns:
            A `keras.Model` from pixels to a dict; tokens are `(batch, tokens, hidden_dim)`,
            prefix tokens first.

        Raises:
            ValueError: If a name is unknown.
        """
        is_one = isinstance(names, str) or not isinstance(names, Iterable)
        names = [names] if is_one else list(names)
        if not names:
            raise ValueError(f"`names` must not be empty. Known: {', '.join(self._views)}.")
        for name in map(str, names):
            if name not in self._views:
                raise unknown_name("intermediate", name, self._views)
        return self._view({name: self._views[name] for name in names})

    def _view(self, outputs: dict[str, Any]) -> keras.Model:
        view = keras.Model(self.inputs[0], outputs)
        self._relatives.add(view)
        return view

    def _forget_compiled(self, recompile: bool = True):
        """Let no model that shares these layers go on with what it compiled before.

        Args:
            recompile: Whether other variables learn now, so that optimizers are of no use.
        """
        for model in self._relatives:
            model.train_function = model.test_function = model.predict_function = None
            model.compiled = model.compiled and not recompile

    def reset_head(
        self,
        num_classes: int,
        labels: Iterable[str] | None = None,
        keep_pre_logits: bool = False,
    ) -> "ImageModel":
        """A new model with a head of zeros that shares all other layers with this one.

        Args:
            num_classes: Logits of the new head; 0 for features.
            labels: One name a class, or None.
            keep_pre_logits: Whether the layer before the head stays, where there is one. False
                drops it, as the official fine-tuning code does; its few-shot evaluation keeps it.
        """
        changes = {"num_classes": num_classes}
        if "representation_size" in self.config.to_dict() and not keep_pre_logits:
            changes["representation_size"] = None
        self._refuse_quantized("reset_head")
        share = {name: made for name, made in self._made.items() if name != "head"}
        config = dataclasses.replace(self.config, **changes)
        return self._with(config=config, labels=labels, multi_label=False, share=share)

    def add_lora(
        self, rank: int, targets: str | Iterable[str] = ("qkv",), alpha: float | None = None
    ) -> None:
        """Put low-rank adapters on dense layers of the blocks; train only them and the head.

        Arguments and errors are those of `keras_vit.lora.add_lora`. Compile the model afterwards.
        Models that share its layers have the adapters, too.
        """
        lora.add_lora(self, rank, targets, alpha)
        self._forget_compiled()

    def merge_lora(self) -> "ImageModel":
        """A new model without adapters, with what they learned."""
        return self._with(read_weights=lora.merged_reader(self))

    def remove_lora(self) -> "ImageModel":
        """A new model without adapters, whose kernels are those from before, bit for bit."""
        return self._with(read_weights=lora.original_reader(self))

    def save_lora(self, path: str | os.PathLike) -> None:
        """Write adapters and head alone into one safetensors file."""
        lora.save_lora(self, path)

    def load_lora(self, path: str | os.PathLike) -> None:
        """Take adapters and head from a file of `save_lora`, adding adapters where none are."""
        before = lora.lora_settings(self)
        lora.load_lora(self, path)
        if before is None:
            self._forget_compiled()

    def _with(self, **changes) -> "ImageModel":
        """A new model from the arguments of this one and some others."""
        model = type(self)(
            **{
                "config": self.config,
                "preprocessing": self.preprocessing,
                "labels": self.labels,
                "multi_label": self.multi_label,
                "include_normalization": self.include_normalization,
                "origin": self.origin,
                "dtype": keras.dtype_policies.get(nested_dtype_policy(self)),
                "name": self.name,
                **changes,
            }
        )
        if "share" in changes:
            self._relatives.add(model)
            model._relatives = self._relatives
            if lora.lora_settings(model) != lora.lora_settings(self):
                raise ValueError(
                    "Adapters stay with the layers that they adapt, some of which this needs "
                    "anew. Take `merge_lora()` or `remove_lora()` of the model first."
                )
        freeze_paths(model, (path for path in frozen_paths(self) if not lora.is_head(path)))
        if lora.lora_settings(model):  # with layers that have adapters
            lora.freeze_base(model)
        return model

    def _refuse_quantized(self, method: str):
        if any(layer.quantization_mode for layer in self._flatten_layers()):
            raise ValueError(
                f"`{method}` needs float weights. Received: a quantized model. Call it first, "
                "then `quantize`."
            )

    def parameter_groups(self) -> dict[str, list[Any]]:
        """The trainable variables by part of the model, in order of depth.

        Returns:
            `"stem"` (all before the first block), `"block_0"` ... (the last one with the encoder's
            final normalization) and `"head"` (pooling and what follows), to lists of variables.
        """
        return {
            name: [variable for layer in layers for variable in layer.trainable_variables]
            for name, layers in layers_by_part(self).items()
        }

    def trainable_part(
        self, blocks: bool | slice | Iterable[int] = True, head: bool = True, stem: bool = True
    ) -> None:
        """Train these parts of the model only. Compile it again afterwards, as Keras asks.

        Args:
            blocks: True or False for all or none, numbers, or a slice: `slice(8, None)` freezes
                the first eight. The encoder's final normalization goes with the last block.
            head: Whether to train pooling, pre-logits and head.
            stem: Whether to train everything before the first block.

        Raises:
            ValueError: If there is no such block.
        """
        freeze_other_parts(self, blocks, head, stem)
        self._forget_compiled()

    def fit(self, x: Any = None, *args, **kwargs):
        """As `keras.Model.fit`; warns when the pixels look like 0..1 and not 0..255."""
        return super().fit(self._watched(x), *args, **kwargs)

    def evaluate(self, x: Any = None, *args, **kwargs):
        """As `keras.Model.evaluate`; warns as `fit` does, but not from inside `fit`."""
        if not kwargs.get("_use_cached_eval_dataset"):  # once an epoch, from `fit`
            x = self._watched(x)
        return super().evaluate(x, *args, **kwargs)

    def predict(self, x: Any, *args, **kwargs):
        """As `keras.Model.predict`; warns as `fit` does."""
        return super().predict(self._watched(x), *args, **kwargs)

    def predict_step(self, *args):
        """As Keras' own, in graphs that TensorFlow fuses on a CPU."""
        with spelled(_fastest_spelling()):
            return super().predict_step(*args)

    def test_step(self, *args):
        """As Keras' own, in graphs that TensorFlow fuses on a CPU."""
        with spelled(_fastest_spelling()):
            return super().test_step(*args)

    def _watched(self, x: Any) -> Any:
        return pixels.warn_of_unit_range(x) if self.include_normalization else x

    def quantize(self, mode: Any = None, config: Any = None, filters: Any = None, **kwargs):
        """As `keras.Model.quantize`; head, positions and patch projection stay float by default.

        Args:
            mode: `"int8"` and others of Keras.
            config: A Keras quantization config instead of `mode`.
            filters: Which layers, as in Keras. None takes the dense layers of the blocks.
            **kwargs: As in Keras.
        """
        if filters is None:

            def filters(layer):
                return isinstance(layer, keras.layers.Dense) and layer.path.startswith("block_")

        super().quantize(mode, config=config, filters=filters, **kwargs)
        self._forget_compiled(recompile=False)

    def get_config(self) -> dict:
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": nested_dtype_policy(self),
            "config": self.config.to_dict(),
            "preprocessing": self.preprocessing.to_dict(),
            "labels": None if self.labels is None else list(self.labels),
            "multi_label": self.multi_label,
            "include_normalization": self.include_normalization,
            "origin": None if self.origin is None else dict(self.origin),
            "lora": lora.lora_settings(self),
            "frozen": frozen_paths(self),
        }

    @classmethod
    def from_config(cls, config: dict, custom_objects: Any = None) -> "ImageModel":
        del custom_objects  # every part is registered
        config = dict(config)
        adapters, frozen = config.pop("lora", None), config.pop("frozen", ())
        config["config"] = cls.config_class(**config["config"])
        config["preprocessing"] = PreprocessingConfig(**config["preprocessing"])
        model = cls(**config)
        if adapters:
            model.add_lora(**adapters)
            if not config.get("trainable", True):
                model.trainable = False
        freeze_paths(model, frozen)
        return model


def _fastest_spelling() -> str | None:
    return "onednn" if is_tensorflow_on_cpu() else None
