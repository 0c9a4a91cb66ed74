# SPDX-License-Identifier: Apache-2.0
"""kubectl reads the kustomizations of contrib/kubernetes. No cluster is needed."""

import json
import re
import shutil
import textwrap
import unittest

import testlib
from testlib import SOURCE_ROOT

FOLDER = SOURCE_ROOT / "contrib" / "kubernetes"


@unittest.skipIf(shutil.which("kubectl") is None, "kubectl is not in PATH")
class Kubectl(testlib.Case):
    def setUp(self):
        super().setUp()
        told = self.run_program("kubectl", "version", "--client", "--output=json")
        version = json.loads(told.out)["clientVersion"]
        if (int(version["major"]), int(re.match(r"\d+", version["minor"])[0])) < (1, 21):
            self.skipTest(f"kubectl {version['gitVersion']} is too old: it takes no folder among the resources")

    def test_it_builds_all(self):
        kustomizations = list(FOLDER.glob("*/kustomization.yaml"))
        self.assertGreater(len(kustomizations), 1)
        for kustomization in kustomizations:
            result = self.run_program("kubectl", "kustomize", kustomization.parent)
            self.assertEqual(result.code, 0, result)
            self.assertIn("kind: Service\n", result.out)

    def test_the_readmes_kustomization_takes_the_image_that_is_pushed(self):
        text = (FOLDER / "README.md").read_text()
        block = re.search(r"^    resources: .*\n(?:    .*\n)+", text, re.M)[0]
        shutil.copytree(FOLDER, self.tmp / "contrib/kubernetes")
        (self.tmp / "mine").mkdir()
        (self.tmp / "mine/kustomization.yaml").write_text(textwrap.dedent(block))
        result = self.run_program("kubectl", "kustomize", self.tmp / "mine")
        self.assertEqual(result.code, 0, result)
        pushed = re.search(r"^    buildah push (\S+)$", text, re.M)[1]
        self.assertIn(f"image: {pushed}\n", result.out)


if __name__ == "__main__":
    testlib.main()
