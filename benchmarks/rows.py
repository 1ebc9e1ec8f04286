"""What is compared with what, and the bounds that it shall clear."""

import dataclasses
import itertools
from collections.abc import Iterable

IMAGE_SIZE = 224
# Each sample is the first and only call of a new process.
FRESH_TASKS = ("load", "import")
# Peers write files beforehand, in a process of their own.
WRITING_TASKS = ("load", "import", "pipeline")
# Figures that no clock gives: measured once, without warming up.
EXACT_TASKS = ("agreement", "loss")
COMPUTING_TASKS = ("inference", "train")
# Model and batch of the training steps.
TRAINED = (("S/16", 8), ("S/16", 16), ("B/16", 8))
# Processes that are held at once; a TensorFlow one with B/16 takes 1 to 3 GB.
MOST_PROCESSES = 8
# One that trains B/16 takes 4 GB: a pair and the matrix products, or the system reclaims memory.
MOST_LARGE_PROCESSES = 3


@dataclasses.dataclass(frozen=True)
class Case:
    """What is computed, whoever does it.

    Args:
        task: `"inference"`, `"train"`, `"load"`, `"import"`, `"pipeline"`, `"agreement"` or
            `"loss"`.
        model: Size, such as `"B/16"`.
        batch: Pictures a call.
        dtype: `"float32"`, `"bfloat16"` or, to train, `"mixed_bfloat16"`.
        image_size: Side of the pictures in pixels.
        num_layers: Depth; None for that of the size.
    """

    task: str
    model: str | None = None
    batch: int | None = None
    dtype: str | None = None
    image_size: int = IMAGE_SIZE
    num_layers: int | None = None

    @property
    def name(self) -> str:
        return "/".join(
            part
            for part in (
                self.task,
                self.dtype,
                self.model and self.model.replace("/", ""),
                self.batch and f"batch{self.batch}",
                self.image_size != IMAGE_SIZE and f"image{self.image_size}",
                self.num_layers and f"depth{self.num_layers}",
            )
            if part
        )


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        case: What is computed.
        subject: Name in `peers.PEERS` of what is judged.
        peer: Of what it is judged by: the value is the peer's seconds, or `quantity`, over the
            subject's. None: the value is the subject's own `quantity`.
        bound: What the interval's nearer end shall reach, or None.
        quantity: A figure that the calls return; None, with a peer, for seconds.
        better: `"higher"` or `"lower"`.
    """

    case: Case
    subject: str
    peer: str | None
    bound: float | None = None
    quantity: str | None = None
    better: str = "higher"

    @property
    def name(self) -> str:
        parts = (self.case.name, self.subject, self.peer, self.quantity)
        return "/".join(part for part in parts if part)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the processes that it needs."""
        return (self.subject, self.peer) if self.peer else (self.subject,)


@dataclasses.dataclass(frozen=True)
class Group:
    """Rows that are measured together, and the processes for them.

    Args:
        name: For people.
        entries: Name of a peer and its case, a process each.
        rows: The rows.
    """

    name: str
    entries: tuple[tuple[str, Case], ...]
    rows: tuple[Row, ...] = ()

    @property
    def is_fresh(self) -> bool:
        return self.entries[0][1].task in FRESH_TASKS

    @property
    def is_exact(self) -> bool:
        return self.entries[0][1].task in EXACT_TASKS


def _bounded() -> Iterable[Row]:
    """The bounds of the project's goal for speed."""
    for model, batch in (("B/16", 8), ("B/16", 32), ("S/16", 8)):
        case = Case("inference", model, batch, "float32")
        yield Row(case, "cpu_saved_model", "keras_hub", 1.15)
        yield Row(case, "cpu_saved_model", "timm", 1.0)
        if model == "B/16":
            yield Row(case, "cpu_saved_model", "gemm", 0.85)
    for model, batch in itertools.product(("S/16", "B/16"), (1, 8, 32)):
        case = Case("inference", model, batch, "bfloat16")
        yield Row(case, "cpu_saved_model", "keras_hub", 2.0)
        yield Row(case, "cpu_saved_model", "timm", 1.0)
    agreement = Case("agreement", dtype="bfloat16")
    yield Row(agreement, "agreement", None, 0.99, quantity="top1_agreement")
    for dtype, model, batch in itertools.product(("float32", "bfloat16"), ("S/16", "B/16"), (1, 8)):
        case = Case("inference", model, batch, dtype)
        yield Row(case, "openvino", "openvino_timm", 1.0)
        if batch == 1:
            yield Row(case, "openvino", "timm", 1.15)
    for dtype, bound in (("float32", 1.15), ("mixed_bfloat16", 1.25)):
        for model, batch in TRAINED:
            case = Case("train", model, batch, dtype)
            yield Row(case, "ours_train", "keras_hub_train", bound)
            yield Row(case, "ours_train", "timm_train", 1.0)
            yield Row(case, "ours_train", "timm_train", 1.0, quantity="peak_memory")
    loss = Case("loss", dtype="mixed_bfloat16")
    yield Row(loss, "loss", None, 0.05, quantity="final_gap", better="lower")
    load = Case("load", "B/16")
    yield Row(load, "load", "load_keras_hub", 1.5)
    yield Row(load, "load", None, 1.1, quantity="growth", better="lower")
    yield Row(Case("import"), "import", None, 50.0, quantity="milliseconds", better="lower")
    yield Row(Case("pipeline"), "pipeline_training", "decode", 0.9)
    yield Row(Case("pipeline"), "pipeline_training_cached", "decode", 0.9)
    yield Row(Case("pipeline"), "pipeline_evaluation", "decode", 0.9)


def _others() -> Iterable[Row]:
    """The rest of the table."""
    ours = ("model_call", "predict", "saved_model", "cpu_saved_model", "openvino")
    for model, batch, dtype in itertools.product(
        ("Ti/16", "S/16", "B/16"), (1, 8, 32), ("float32", "bfloat16")
    ):
        case = Case("inference", model, batch, dtype)
        for subject in ours:
            yield Row(case, subject, "keras_hub")
            yield Row(case, subject, "timm")
            yield Row(case, subject, "gemm")
        yield Row(case, "cpu_saved_model", "keras_hub_frozen")
        for peer in ("keras_hub_jax", "timm_compiled", "transformers", "onnxruntime"):
            if peer != "onnxruntime" or dtype == "float32":
                yield Row(case, "saved_model", peer)
        yield Row(case, "openvino", "openvino_timm")
    case = Case("inference", "S/16", 8, "float32")
    yield Row(case, "ours_jax", "keras_hub_jax")
    yield Row(case, "ours_torch", "keras_hub_torch")
    pipelines = ("pipeline_training", "pipeline_training_cached", "pipeline_evaluation")
    for subject in (*pipelines, "decode"):
        yield Row(Case("pipeline"), subject, None, quantity="images_per_second")
    for dtype, (model, batch) in itertools.product(("float32", "mixed_bfloat16"), TRAINED):
        case = Case("train", model, batch, dtype)
        yield Row(case, "ours_train", "keras_hub_train", quantity="peak_memory")
        for subject in ("ours_train", "keras_hub_train", "timm_train"):
            yield Row(case, subject, None, quantity="peak_memory", better="lower")
    loss = Case("loss", dtype="mixed_bfloat16")
    for quantity in ("largest_gap", "other_order_final_gap", "other_order_largest_gap"):
        yield Row(loss, "loss", None, quantity=quantity, better="lower")


def _table() -> tuple[Row, ...]:
    rows = {}
    for row in itertools.chain(_bounded(), _others()):
        rows.setdefault(row.name, row)
    return tuple(rows.values())


ROWS = _table()


def groups(rows: Iterable[Row]) -> list[Group]:
    """Return rows of one case together, in parts whose processes fit into memory at once.

    Whatever computes gets the rate of plain matrix products beside it.
    """
    by_case: dict[Case, list[Row]] = {}
    for row in rows:
        by_case.setdefault(row.case, []).append(row)
    found = []
    for case, of_case in by_case.items():
        always = ("gemm",) if case.task in COMPUTING_TASKS else ()
        parts: list[tuple[dict[str, None], list[Row]]] = []
        for row in of_case:
            fits = (part for part in parts if len({*part[0], *row.names}) <= _most(case))
            part = next(fits, None)
            if part is None:
                part = dict.fromkeys(always), []
                parts.append(part)
            part[0].update(dict.fromkeys(row.names))
            part[1].append(row)
        for names, members in parts:
            entries = tuple((name, case) for name in names)
            found.append(Group(case.name, entries, tuple(members)))
    return found


def _most(case: Case) -> int:
    """Processes that are held at once for a case."""
    is_large = case.task == "train" and case.model == "B/16"
    return MOST_LARGE_PROCESSES if is_large else MOST_PROCESSES
