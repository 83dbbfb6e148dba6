"""A folder includes only itself and the rows above it in the layer table of docs/architecture.md."""

import re
import unittest

from source_tree import ROOT, cpp_files, includes, name_of

TABLE = ROOT / "docs" / "architecture.md"
FOLDER = re.compile(r"\b(include/mlxlm|src/[a-z0-9_]+)/?")
RUST_HEADERS = ROOT / "rust" / "include"  # the C interface of the Rust part, for the layers that stand on it
RUST_USERS = {"src/text", "src/hub", "src/sampling"}
INTRINSICS = re.compile(r"^(.*intrin\.h|arm_neon\.h|arm_sve\.h|arm_acle\.h|hwy/.*)$")
ISA_MACRO = re.compile(r"\b(__AVX\w*|__SSE\w*|__FMA__|__F16C__|__ARM_\w+|__aarch64__|__x86_64__)\b")


def layer_rows():
    """The table's rows in order, each the list of folders that its first cell names."""
    rows = []
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            folders = FOLDER.findall(line.split("|")[1])
            if folders:
                rows.append(folders)
    return rows


def folder_of(name):
    """include/mlxlm/error.h → include/mlxlm; src/io/json.h → src/io."""
    return "/".join(name.split("/")[:2])


def target_folder(target):
    if target.startswith("mlxlm/"):
        return "include/mlxlm"
    return f"src/{target.split('/')[0]}" if "/" in target else None


class Layers(unittest.TestCase):
    def setUp(self):
        self.rank = {folder: i for i, row in enumerate(layer_rows()) for folder in row}

    def test_the_table_names_every_folder_once(self):
        named = [folder for row in layer_rows() for folder in row]
        self.assertEqual(len(named), len(set(named)), f"{name_of(TABLE)}: a folder stands in two rows")
        used = {folder_of(name_of(path)) for path in cpp_files()}
        self.assertEqual(used - set(named), set(), f"{name_of(TABLE)}: these folders are missing in the layer table")
        self.assertEqual(named[0], "include/mlxlm")

    def test_includes_go_upward_only(self):
        wrong = []
        for path in cpp_files():
            own = folder_of(name_of(path))
            for line, quote, target in includes(path):
                if quote == "<" and not target.startswith("mlxlm/"):
                    continue
                if own in RUST_USERS and (RUST_HEADERS / target).is_file():
                    continue
                other = target_folder(target)
                if other is None:
                    wrong.append(f'{name_of(path)}:{line}: "{target}": write the path from src/ or include/')
                elif other not in self.rank:
                    wrong.append(f'{name_of(path)}:{line}: "{target}": {other} is not in the layer table')
                elif other != own and self.rank[other] >= self.rank[own]:
                    wrong.append(f'{name_of(path)}:{line}: "{target}": {own} may not use {other}, which is not above it')
        self.assertEqual(wrong, [], "\n".join(wrong))

    def test_every_quoted_include_exists(self):
        missing = [
            f'{name_of(path)}:{line}: "{target}"'
            for path in cpp_files()
            for line, quote, target in includes(path)
            if quote == '"' and not any((ROOT / top / target).is_file() for top in ("src", "include", "rust/include"))
        ]
        self.assertEqual(missing, [], "no such file:\n" + "\n".join(missing))

    def test_intrinsics_stay_in_the_kernels(self):
        outside = [
            f"{name_of(path)}:{line}: <{target}>"
            for path in cpp_files()
            if not name_of(path).startswith("src/kernels/")
            for line, _, target in includes(path)
            if INTRINSICS.match(target)
        ]
        self.assertEqual(outside, [], "intrinsics outside src/kernels:\n" + "\n".join(outside))

    def test_public_headers_need_the_standard_library_only(self):
        wrong = []
        for path in cpp_files():
            if not name_of(path).startswith("include/"):
                continue
            for line, quote, target in includes(path):
                if not target.startswith("mlxlm/") and (quote == '"' or "." in target or "/" in target):
                    wrong.append(f"{name_of(path)}:{line}: {target}")
            wrong += [f"{name_of(path)}: {macro}" for macro in ISA_MACRO.findall(path.read_text(encoding="utf-8"))]
        self.assertEqual(wrong, [], "\n".join(wrong))


if __name__ == "__main__":
    unittest.main()
