"""Makes the files of this folder from the shared folder beside the checkout: ``python tests/data/make.py``."""

import gzip
import json
import lzma
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from support.packed_trace import pack  # noqa: E402  # from the folder above

#: As they are, a row a line.
ORACLES = "vllm_kvcachemanager sglang_radixcache vllm_cpu_offload libcachesim_discriminating".split()
#: Whole, by xz.
COMPRESSED = """
    oracles/vllm_hybrid_conversation.json oracles/vllm_hybrid_lcg.json
    oracles/vllm_hybrid_short.json oracles/libcachesim_traces.json oracles/lmcache_conversation.json
    oracles/lmcache_lcg.json oracles/sglang_unified_conversation.json
    oracles/sglang_unified_lcg.json oracles/sglang_unified_short.json
    oracles/vllm_scheduler_lcg_streams.json golden/hash_id_golden.json
    traces/sharegpt_llama31_8b_300_b16.jsonl traces/miniswe_b256bytes.jsonl
""".split()


def write(name: str, content: bytes) -> None:
    target = HERE / name
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(content)
    print(f"{len(content):>8}  {name}")


def main(shared: Path) -> None:
    for name in ORACLES:
        rows = json.loads((shared / f"oracles/{name}.json").read_text())
        lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
        write(f"oracles/{name}.json", f"[\n{lines}\n]\n".encode())
    rows = json.loads((shared / "oracles/vllm_scheduler_lcg.json").read_text())[:12]
    rows = [{k: v for k, v in row.items() if not k.startswith("first_")} for row in rows]
    text = json.dumps(rows, separators=(",", ":"))
    write("oracles/vllm_scheduler_lcg.json.xz", lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    for name in COMPRESSED:
        content = (shared / name).read_bytes()
        write(f"{name}.xz", lzma.compress(content, preset=9 | lzma.PRESET_EXTREME))
    conversation = (shared / "traces/conversation_trace.jsonl").read_bytes()
    write("traces/conversation_trace.jsonl.packed", pack(conversation))
    azure = (shared / "traces/azure2023_conv.csv").read_bytes().splitlines(keepends=True)
    write("heads/azure2023_conv.csv", b"".join(azure[:101]))
    sessions = gzip.decompress((shared / "traces/weka_agentic_dev.jsonl.gz").read_bytes()).splitlines(True)
    few = sorted(sessions, key=len)
    with_agents = [session for session in few if b"subagent" in session]
    write("heads/weka_agentic_dev.jsonl", b"".join([few[100], few[200], with_agents[0]]))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parents[2] / "shared")
