"""Which files a run uses: the rules. What is on disk, the caller tells."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from pydantic import JsonValue

from ..errors import BadName
from ..files import Family
from ..plugin.node import FileRule, NodeDefinition, Param, ParamKind
from ..plugin.values import JsonObject
from ..plugin.views import FileRole, FileSource, FileUse, RunFiles
from ..portable_names import check_name
from .definitions import Definitions
from .document import Document
from .expand import expand
from .mapped import close, mapped_presets
from .param_values import complete
from .plan import executable

FAMILY_OF_KIND: Mapping[ParamKind, Family] = {
    ParamKind.MODEL_FILE: Family.MODELS,
    ParamKind.IMAGE_FILE: Family.IMAGES,
    ParamKind.DATA_FILE: Family.FILES,
}
_READS = frozenset({FileRole.READS, FileRole.READS_FOLDER, FileRole.READS_ANY})
_USING = frozenset({FileSource.UPLOAD, FileSource.ARTIFACT, FileSource.DATA_PATH, FileSource.OUTPUT})
_CARRIED = frozenset({FileSource.UPLOAD, FileSource.ARTIFACT})
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What lies somewhere."""

    present: bool = False
    size_bytes: int | None = None
    """Of a regular file; None for a folder, and when nothing is there."""
    source: FileSource = FileSource.OTHER_PATH
    """For a plain path: BUNDLED, ARTIFACT, DATA_PATH or OTHER_PATH, after resolving it; it is judged by
    where it lies, whether it is there or not."""


class FileLook(Protocol):
    """The caller's view of its disk."""

    def below(self, family: Family, name: str) -> Seen:
        """What lies below a family's folder; ``name`` is checked and normalised."""
        ...

    def at(self, value: str) -> Seen:
        """What lies at a plain path: relative ones are below the base folder."""
        ...


def files_used(
    document: Document, definitions: Definitions, look: FileLook, *, limit_bytes: int | None = None
) -> RunFiles:
    """The files of the nodes that run, in the order of the document, and whether they can travel with
    inputs of at most ``limit_bytes``.

    Raises: GraphInvalid for a document that can't be expanded.
    """
    uses = tuple(use for node in _nodes(document, definitions) for use in _uses_of(node, look))
    return RunFiles(
        uses=uses,
        uses_files=any(use.source in _USING for use in uses),
        carry_problem=_carry_problem(uses, limit_bytes),
    )


@dataclass(frozen=True, slots=True)
class _Node:
    id: str
    definition: NodeDefinition
    params: JsonObject


def _nodes(document: Document, definitions: Definitions) -> Iterable[_Node]:
    """Those that run, then those of each preset that one of them runs by name."""
    flat = expand(document, definitions)
    running = executable(flat)
    closure = close(document, definitions)
    pending = [[node for node in flat.nodes.values() if node.id in running]]
    seen: set[str] = set()
    while pending:
        nodes = pending.pop()
        for node in nodes:
            if (definition := definitions.find(node.type)) is not None:
                yield _Node(node.id, definition, complete(definition, node.params))
        for _, _, name in mapped_presets(nodes, definitions):
            if name in closure.presets and name not in seen:
                seen.add(name)
                inlined = closure.presets[name]
                pending.append([node for node in inlined.nodes.values() if node.id not in inlined.bypassed])


def _uses_of(node: _Node, look: FileLook) -> Iterable[FileUse]:
    for param in node.definition.params:
        value = node.params[param.name]
        if isinstance(value, str) and value and (param.path or param.kind in FAMILY_OF_KIND):
            yield _use_of_param(node, param, value, look)
    for rule in node.definition.files:
        if rule.when is None or _is_set(node.params.get(rule.when)):
            yield _use_of_rule(node, rule)


def _is_set(value: JsonValue) -> bool:
    if isinstance(value, int | float):
        return value > 0
    return bool(value)


def _use_of_param(node: _Node, param: Param, value: str, look: FileLook) -> FileUse:
    role = param.path or FileRole.READS
    family = FAMILY_OF_KIND.get(param.kind, param.family)
    reads = role in _READS
    seen = _look(param, family, role, value, look) if reads else Seen(source=FileSource.OUTPUT)
    return FileUse(
        node_id=node.id,
        node_type=node.definition.type,
        param=param.name,
        role=role,
        source=seen.source,
        family=family,
        value=value,
        size_bytes=seen.size_bytes,
        present=seen.present,
    )


def _use_of_rule(node: _Node, rule: FileRule) -> FileUse:
    writes = rule.role not in _READS
    return FileUse(
        node_id=node.id,
        node_type=node.definition.type,
        param=rule.when or "",
        role=rule.role,
        source=FileSource.OUTPUT if writes else FileSource.DATA_PATH,
        family=rule.family,
        value="",
        present=not writes,
    )


def _look(param: Param, family: Family | None, role: FileRole, value: str, look: FileLook) -> Seen:
    """A file field takes an upload of its family first, then a file that an earlier run left; everything else is a
    plain path. A name without folders that is nowhere is an upload that is missing.
    """
    below = _below(family, value, look)
    is_field = param.kind in FAMILY_OF_KIND
    if is_field and role is not FileRole.READS_FOLDER and below.size_bytes is not None:
        return Seen(present=True, size_bytes=below.size_bytes, source=FileSource.UPLOAD)
    if below.present:
        return Seen(present=True, size_bytes=below.size_bytes, source=FileSource.DATA_PATH)
    plain = look.at(value)
    if plain.source is FileSource.ARTIFACT and not (is_field and role is FileRole.READS):
        plain = replace(plain, source=FileSource.DATA_PATH)
    if is_field and not plain.present and "/" not in value and "\\" not in value:
        return Seen(source=FileSource.UPLOAD)
    if family is not None and not is_field and not plain.present and not value.startswith("/"):
        return Seen(source=FileSource.DATA_PATH)
    return plain


def _below(family: Family | None, value: str, look: FileLook) -> Seen:
    if family is None:
        return Seen()
    try:
        return look.below(family, str(check_name(value)))
    except BadName:
        return Seen()


def _carry_problem(uses: Iterable[FileUse], limit_bytes: int | None) -> str | None:
    sizes: dict[tuple[Family | None, str], int] = {}
    for use in uses:
        if use.role not in _READS:
            continue
        if use.source is FileSource.DATA_PATH:
            what = f"the path {use.value}" if use.value else "the data folder"
            return f"{use.node_type} ({use.node_id}) reads {what} instead of an upload"
        if use.source is FileSource.UPLOAD and not use.present:
            return f"the server has no upload {use.value}, which {use.node_type} ({use.node_id}) reads"
        if use.source in _CARRIED:
            sizes[use.family, use.value] = use.size_bytes or 0
    return over_limit(sum(sizes.values()), limit_bytes)


def over_limit(total_bytes: int, limit_bytes: int | None) -> str | None:
    """Why inputs of so many bytes can't travel; None: they can."""
    if limit_bytes is None or total_bytes <= limit_bytes:
        return None
    return (
        f"its inputs add up to {size_text(total_bytes)}, over the transfer limit of {size_text(limit_bytes)} "
        f"(CODEFYUI_TRANSFER_MAX_INPUT_BYTES)"
    )


def size_text(size_bytes: int) -> str:
    """``3.10 GiB``: two decimals and the largest binary unit of which there is at least one (IEC 80000-13)."""
    power = min(max((size_bytes.bit_length() - 1) // 10, 0), len(_UNITS) - 1)
    if power == 0:
        return f"{size_bytes} B"
    return f"{size_bytes / 1024**power:.2f} {_UNITS[power]}"
