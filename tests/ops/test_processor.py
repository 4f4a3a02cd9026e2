"""What the processor says that it can do."""

from __future__ import annotations

import pytest

from vsemb.ops import processor

X86 = "processor\t: 0\nflags\t\t: fpu avx2 {flag}\n\nprocessor\t: 1\nflags\t\t: fpu\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (X86.format(flag="avx512_bf16"), {"fpu", "avx2", "avx512_bf16"}),
        ("processor\t: 0\nFeatures\t: fp asimd bf16\n", {"fp", "asimd", "bf16"}),
        ("model name: none\n", set()),
        (None, set()),
    ],
    ids=["x86", "arm", "no-flags", "no-file"],
)
def test_processor_flags(text: str | None, expected: set[str], tmp_path) -> None:
    path = tmp_path / "cpuinfo"
    if text is not None:
        path.write_text(text)
    assert processor.processor_flags(path) == expected


@pytest.mark.parametrize("flag", ["avx512_bf16", "amx_bf16", "bf16", "avx2"])
def test_what_multiplies_bfloat16(flag: str, monkeypatch) -> None:
    monkeypatch.setattr(processor, "processor_flags", lambda: {"fpu", flag})
    assert processor.multiplies_bfloat16.__wrapped__() == (flag != "avx2")
