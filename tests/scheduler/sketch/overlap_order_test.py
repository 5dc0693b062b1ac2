"""Overlapping kernels wait before they touch what the kernel in front may: looked at in their machine code, without a GPU.

The kernels are those of overlap_kernels ($DIAPASON_OVERLAP_KERNELS), compiled by NVRTC; exit status 77 where there is none. The
disassembler comes from PyPI, into a virtual environment under $DIAPASON_VENVS that later runs find; $DIAPASON_NVDISASM names another one.
"""
import glob
import multiprocessing
import os
import subprocess
import sys
import tempfile
import unittest

import overlap_order
import python_environment

NO_NVRTC, SKIPPED = 3, 77
SHARDS = 2

HEAD = """
	.section	.nv.info.k,"",@"SHT_CUDA_INFO"
	//----- nvinfo : EIATTR_PARAM_CBANK
	.align		4
        /*0058*/ 	.byte	0x04, 0x0a
        /*005a*/ 	.short	(.L_45 - .L_44)
.L_44:
        /*005c*/ 	.word	index@(.nv.constant0.k)
        /*0060*/ 	.short	0x0210
        /*0062*/ 	.short	0x0018
	//----- nvinfo : EIATTR_UNKNOWN
        /*0060*/ 	.short	0x0777
	.section	.text.k,"ax",@progbits
k:
.text.k:
"""


def nvdisasm():
    """The disassembler's path, installed when it is not there."""
    if "DIAPASON_NVDISASM" in os.environ:
        return os.environ["DIAPASON_NVDISASM"]
    folder = os.path.join(os.environ["DIAPASON_VENVS"], "nvdisasm")
    try:
        python_environment.make_venv(folder, ["nvidia-cuda-nvdisasm>=13,<14"])
    except SystemExit as failure:
        sys.exit("%s; or give the path of an nvdisasm of CUDA 13 in DIAPASON_NVDISASM" % failure)
    return glob.glob(os.path.join(folder, "lib", "python3*", "site-packages", "nvidia", "**", "bin", "nvdisasm"), recursive=True)[0]


def look_at(arguments):
    """Of one shard, for each kernel: (kind, description, problems, problems without the wait, accesses before it, whether it reads other
    blocks' memory); None without NVRTC."""
    tool, shard = arguments
    results = []
    with tempfile.TemporaryDirectory() as folder:
        command = [os.environ["DIAPASON_OVERLAP_KERNELS"], folder, str(shard), str(SHARDS)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as kernels:
            listings = {}
            for line in kernels.stdout:
                cubin, kernel, parameters, kind, description = line.rstrip("\n").split("\t")
                if cubin not in listings:
                    listings = {cubin: overlap_order.parse(subprocess.run([tool, cubin], check=True, capture_output=True, text=True).stdout)}
                    os.remove(cubin)
                code = listings[cubin][kernel]
                problems = overlap_order.check_kernel(code, parameters)
                ahead = overlap_order.accesses_before_wait(code)
                without = overlap_order.check_kernel(code.without_wait(), parameters)
                results.append((kind, description, problems, without, ahead, overlap_order.reads_other_blocks(code)))
        if kernels.returncode == NO_NVRTC:
            return None
        if kernels.returncode != 0:
            raise RuntimeError("%s ended with status %d" % (command[0], kernels.returncode))
    return results


class ListingTest(unittest.TestCase):
    def problems(self, *code, parameters="vcv"):
        listing = HEAD + "".join(
            line + "\n" if line.endswith(":") else "        /*%04x*/                   %s ;\n" % (16 * i, line) for i, line in enumerate(code))
        return [text.split(": ")[-1] for text in overlap_order.check(listing, "k", parameters)]

    LOADS = ("LDC.64 R2, c[0x0][0x210]", "LDC.64 R4, c[0x0][0x218]", "IMAD.WIDE R6, R0, 0x4, c[0x0][0x220]")
    END = ("STG.E desc[UR4][R6.64], R0", "EXIT")

    def test_constants_may_come_before_the_wait(self):
        code = self.LOADS + ("LDG.E.CONSTANT R9, desc[UR4][R4.64+0x10]", "ACQBULK", "LDG.E R8, desc[UR4][R2.64]") + self.END
        self.assertEqual(self.problems(*code), [])

    def test_inputs_and_outputs_may_not(self):
        wait = ("ACQBULK",) + self.END
        early = "uses parameter %d before the wait"
        self.assertEqual(self.problems(*self.LOADS, "LDG.E.CONSTANT R8, desc[UR4][R2.64]", *wait), [early % 0])
        self.assertEqual(self.problems(*self.LOADS, "LDG.E.128 R8, desc[UR4][R2.64]", *wait), [early % 0])
        self.assertEqual(self.problems(*self.LOADS, "STG.E desc[UR4][R6.64], R4", *wait), [early % 2])
        self.assertEqual(self.problems(*self.LOADS, "LDGSTS.E.BYPASS.128 [R4], desc[UR4][R2.64]", *wait), [early % 0])
        self.assertEqual(self.problems(*self.LOADS, "@P0 ATOMG.E.ADD.F32 PT, R8, desc[UR4][R6.64], R9", *wait), [early % 2])

    def test_addresses_are_followed(self):
        wait = ("ACQBULK",) + self.END
        moved = ("ULDC.64 UR8, c[0x0][0x210]", "UIADD3 UR6, UP0, UR8, 0x80, URZ", "UIADD3.X UR7, URZ, UR9, URZ, UP0, !UPT")
        self.assertEqual(self.problems(*moved, "UBLKCP.S.G [UR10], [UR6], UR12", *wait), ["uses parameter 0 before the wait"])
        self.assertEqual(self.problems(*moved, "MOV R10, UR6", "MOV R11, UR7", "LDG.E R8, desc[UR4][R10.64]", *wait),
                         ["uses parameter 0 before the wait"])
        # A register that is used again has lost what it had, unless it may have kept it.
        again = "IMAD.WIDE R2, R0, 0x4, R4"
        self.assertEqual(self.problems(*self.LOADS, again, "LDG.E R8, desc[UR4][R2.64]", *wait), [])
        self.assertEqual(self.problems(*self.LOADS, "@P0 " + again, "LDG.E R8, desc[UR4][R2.64]", *wait), ["uses parameter 0, 1 before the wait"])
        # What runs under one predicate goes together, until that changes or something else is computed.
        both = ("@!P0 " + again, "@!P0 LDG.E R8, desc[UR4][R2.64]")
        self.assertEqual(self.problems(*self.LOADS, *both, *wait), [])
        for between in ("ISETP.NE.AND P0, PT, R8, 0x7, PT", ".L_x_9:", "@P1 MOV R2, c[0x0][0x210]"):
            self.assertEqual(self.problems(*self.LOADS, both[0], between, both[1], *wait), ["uses parameter 0, 1 before the wait"])
        branches = ("@P0 BRA `(.L_x_1)", again, ".L_x_1:", "LDG.E R8, desc[UR4][R2.64]")
        self.assertEqual(self.problems(*self.LOADS, *branches, *wait), ["uses parameter 0, 1 before the wait"])
        spilled = ("STL.64 [R1], R2", "LDL.64 R8, [R1]", "LDG.E R8, desc[UR4][R8.64]")
        self.assertEqual(self.problems(*self.LOADS, *spilled, *wait), ["uses parameter 0 before the wait"])

    def test_addresses_from_nowhere_are_refused(self):
        self.assertEqual(self.problems("LDG.E R8, desc[UR4][R20.64]", "ACQBULK", *self.LOADS, *self.END), ["uses what is no parameter before the wait"])

    def test_the_read_only_path_is_for_constants_alone(self):
        code = self.LOADS + ("ACQBULK", "LDG.E.CONSTANT R8, desc[UR4][R2.64]", "LDG.E.CONSTANT R9, desc[UR4][R4.64]") + self.END
        self.assertEqual(self.problems(*code), ["uses parameter 0 through the read-only path"])

    def test_every_thread_waits(self):
        ends = "ends a thread that has not waited"
        self.assertEqual(self.problems(*self.LOADS, "@P0 EXIT", "ACQBULK", *self.END), [ends])
        self.assertEqual(self.problems(*self.LOADS, "@P0 ACQBULK", "EXIT"), [ends])
        self.assertEqual(self.problems(*self.LOADS, "@P0 BRA `(.L_x_1)", "ACQBULK", ".L_x_1:", "EXIT"), [ends])
        self.assertEqual(self.problems("BRX R2 -0x10", "ACQBULK", "EXIT"), ["goes where is not known before the wait"])
        loop = (".L_x_1:", "@P0 BRA `(.L_x_1)", "BSSY B0, `(.L_x_2)", "@P1 BRA `(.L_x_3)", "NOP", ".L_x_3:", "BSYNC B0", ".L_x_2:", "ACQBULK")
        self.assertEqual(self.problems(*self.LOADS, *loop, *self.END), [])

    def test_tensor_maps_are_parameters(self):
        # Three pointers end at 0x228, so that maps begin 0x30 behind the first, at 0x240.
        head = HEAD.replace("0x0018", "0x0130")
        listing = lambda *code: head + "".join("        /*%04x*/                   %s ;\n" % (16 * i, line) for i, line in enumerate(code))
        problems = lambda *code: [text.split(": ")[-1] for text in overlap_order.check(listing(*code), "k", "vcv+cv")]
        window = "LDC.64 R6, c[0x0][0x198]"
        copy = lambda distance: (window, "IADD3 R2, P0, R6, %s, RZ" % distance, "IMAD.X R3, RZ, RZ, R7, P0", "R2UR UR12, R2", "R2UR UR13, R3",
                                 "UTMALDG.2D [UR8], [UR12]")
        self.assertEqual(problems(*copy("0x30"), "ACQBULK", *copy("0xb0"), "EXIT"), [])
        self.assertEqual(problems(*copy("0xb0"), "ACQBULK", "EXIT"), ["uses parameter %s before the wait" % 22])
        self.assertEqual(problems(window, "UTMALDG.2D [UR8], [UR12]", "ACQBULK", "EXIT"), ["uses what is no parameter before the wait"])

    def test_nothing_of_other_blocks_is_read_behind_the_end_of_the_cluster(self):
        meet, load, store = ("UCGABAR_ARV", "UCGABAR_WAIT"), "LD.E.128 R8, desc[UR4][R2.64]", "STG.E desc[UR4][R6.64], R8"
        head = self.LOADS + ("ACQBULK",) + meet
        late = "comes behind the end of the cluster"
        self.assertEqual(self.problems(*head, load, store, *meet, "EXIT"), [])
        self.assertEqual(self.problems(*head, load, *meet, store, "EXIT"), [late])
        self.assertEqual(self.problems(*head, "@P0 BRA `(.L_x_1)", load, ".L_x_1:", *meet, load, store, "EXIT"), [late, late])
        # What was read of no other block may be stored at any time.
        self.assertEqual(self.problems(*head, *meet, store, "EXIT"), [])

    def test_what_does_not_fit_is_refused(self):
        self.assertEqual(self.problems("ACQBULK", "EXIT", parameters="vc"), ["the listing has no place for 2 parameters"])
        self.assertEqual(overlap_order.check(HEAD, "other", "v"), ["the listing has no kernel other"])


class MachineCodeTest(unittest.TestCase):
    def test_kernels_of_all_built_in_tasks(self):
        tool = nvdisasm()
        with multiprocessing.Pool(SHARDS) as pool:
            shards = pool.map(look_at, [(tool, shard) for shard in range(SHARDS)])
        if None in shards:
            print("skipped: no CUDA compiler: libnvrtc.so was not found", flush=True)
            os._exit(SKIPPED)
        kernels = [kernel for shard in shards for kernel in shard]
        right, wrong = [k for k in kernels if k[0] == "new"], [k for k in kernels if k[0] == "old"]
        for _, description, problems, without, _, _ in right:
            self.assertEqual(problems, [], description)
            self.assertNotEqual(without, [], "without its wait, " + description)
        self.assertGreater(len(right), 100)
        # As kernels were printed once: what they load comes through the read-only path, of some before the wait. Right are those that
        # copy all inputs asynchronously.
        found = [k for k in wrong if k[2]]
        early = [k for k in wrong if any("before the wait" in text for text in k[2])]
        self.assertGreater(len(wrong), 10)
        self.assertGreater(len(found), len(wrong) // 2)
        self.assertGreater(len(early), 5)
        self.assertTrue([k for k in found if k[1].startswith("efficientnet-b0/")], "the kernel that computed wrong numbers in a network")
        ahead = sum(k[4] > 0 for k in right)
        self.assertGreater(sum(k[5] for k in right), 0, "no kernel reads the memory of other blocks of its cluster")
        self.assertGreater(ahead, 0, "no kernel fetches constants before it waits")
        print("%d kernels, %d fetch constants before they wait; %d made wrong, %d of these found, %d read inputs before they wait" %
              (len(right), ahead, len(wrong), len(found), len(early)))


if __name__ == "__main__":
    unittest.main()
