"""libmlxlm.so exports the public interface and nothing else. Environment: MLXLM_LIBRARY, MLXLM_NM."""

import os
import re
import subprocess
import unittest

INTERNAL = re.compile(r"^mlxlm::(engine|text|io|nn|models|kernels|sampling|conversion|server|cli|base|tensor)::")
TYPE_INFO = re.compile(r"^(typeinfo|typeinfo name|vtable) for ")
EXPECTED = ("mlxlm::version()", "mlxlm::load(", "mlxlm::generate(", "mlxlm::stream_generate(", "mlxlm::convert(",
            "mlxlm::Tokenizer::encode(", "mlxlm::Model::info() const", "mlxlm::PromptCache::trim(",
            "mlxlm::TokenStream::begin()")


class Exports(unittest.TestCase):
    def setUp(self):
        command = [os.environ.get("MLXLM_NM", "nm"), "--dynamic", "--defined-only", "--demangle",
                   os.environ["MLXLM_LIBRARY"]]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        # The ABI tag of functions that return std::string is no part of the name.
        self.names = [line[19:].replace("[abi:cxx11]", "") for line in lines]

    def test_only_public_names(self):
        plain = [TYPE_INFO.sub("", name) for name in self.names]
        wrong = [name for name in plain if not name.startswith("mlxlm::") or INTERNAL.match(name)]
        self.assertEqual(wrong, [], "exported, but no part of include/mlxlm:\n" + "\n".join(wrong))

    def test_the_public_functions_are_there(self):
        missing = [e for e in EXPECTED if not any(name.startswith(e) for name in self.names)]
        self.assertEqual(missing, [], "not exported; see cmake/exports.map")


if __name__ == "__main__":
    unittest.main()
