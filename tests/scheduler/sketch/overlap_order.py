"""What the machine code of a kernel does before it waits for the kernel in front (programmatic dependent launch).

`check` takes nvdisasm's listing of a cubin for sm_90 and says, kernel by kernel, what is wrong with it:
  - a global load, store or copy that may come before the wait (ACQBULK) and is not certainly of a constant parameter;
  - a way through the kernel on which a thread ends without having waited: the next kernel counts on the wait for all before;
  - a load through the read-only path (.CONSTANT), anywhere, that is not certainly of a constant parameter;
  - a load of another block's shared memory, or in a kernel with such loads a store of a result, that may come behind the kernel's last
    arrival at the barrier of its cluster: the other block may have ended, and the arrival waits for no load but by what is stored.

Which parameter an address comes from is followed through the registers along the control flow graph: each register has the set of
parameters that its value may have been computed from, the union over all ways that lead there. What is not understood (an
indirect jump, an address from nowhere) counts as wrong.

Tensor maps are parameters themselves, of 128 bytes; copies take their addresses: that of all parameters, which stands in the constant
bank, and a distance.
"""
import re

GLOBAL = {"LDG", "LD", "LDGSTS", "STG", "ST", "ATOM", "ATOMG", "RED", "REDG", "UBLKCP", "UBLKRED", "UBLKPF", "UTMALDG", "UTMASTG",
          "UTMAREDG", "UTMAPF", "SULD", "SUST", "SUATOM", "SURED", "TEX", "TLD", "TLD4"}
BY_PAIRS = {"UBLKCP", "UBLKRED", "UBLKPF", "UTMALDG"}  # their addresses are pairs of registers that the listing names by the first
# Write no register.
NO_RESULT = {"STG", "ST", "STS", "STL", "RED", "REDG", "LDGSTS", "LDGDEPBAR", "DEPBAR", "BAR", "BRA", "EXIT", "ACQBULK", "PREEXIT", "NOP",
             "MEMBAR", "ERRBAR", "FENCE", "CCTL", "WARPSYNC", "BSSY", "BSYNC", "BREAK", "UBLKCP", "CALL", "RET", "YIELD", "NANOSLEEP", "STSM"}
LOCAL = 1000  # the place of all that is spilled
WINDOW = 0x198  # in constant bank 0: the address of the parameters
WINDOW_BIT = 1 << 62  # of what comes from there
MAP_BYTES, MAP_ALIGNMENT, WORD_BYTES = 128, 64, 8
IMMEDIATE = re.compile(r"(?<![\w\[])0x[0-9a-f]+(?![\w\]])")

INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
LABEL = re.compile(r"^([.$\w]+):\s*$")
TARGET = re.compile(r"`\(([^)]+)\)")
REGISTER = re.compile(r"\b(U?)R(\d+|Z)(\.64)?\b")
PARAMETER = re.compile(r"c\[0x0\]\[([^\]]+)\]")
BRACKET = re.compile(r"(desc)?\[([^\]]*)\]")


class Instruction:
    def __init__(self, address, predicate, opcode, operands):
        self.predicate = predicate
        self.address, self.opcode, self.text = address, opcode, " ".join(filter(None, (predicate and "@" + predicate, opcode, operands)))
        self.root = opcode.split(".")[0]
        self.certain = predicate is None  # runs whenever it is reached
        self.operands = operands
        self.target = next(iter(TARGET.findall(operands)), None)
        self.width = 4 if ".128" in opcode else 2 if ".64" in opcode or ".WIDE" in opcode else 1
        self.is_global = self.root in GLOBAL
        self._read_operands()

    def _read_operands(self):
        plain = TARGET.sub("", self.operands)
        parts = [part.strip() for part in re.split(r",(?![^\[]*\])", plain)]
        self.results, self.certain_result, self.first_result = [], False, False
        if self.root not in NO_RESULT and parts:
            first = registers(parts[0]) if "[" not in parts[0] else []
            if first:
                self.results, self.certain_result, self.first_result, parts = first, self.certain, True, parts[1:]
            elif re.fullmatch(r"!?U?PT?\d*", parts[0]) and len(parts) > 1 and "[" not in parts[1]:
                self.results = registers(parts[1])  # a predicate, and perhaps a register beside it
        self.sources = [r for part in parts for r in registers(re.sub(r"desc\[[^\]]*\]", "", part))]
        self.parameters = [text for part in parts for text in PARAMETER.findall(part)]
        self.unknown_bank = "cx[" in plain
        self.addresses = []
        groups = [text for desc, text in BRACKET.findall(PARAMETER.sub("", plain)) if not desc]
        for text in (groups[-1:] if self.root in ("LDGSTS", "UTMALDG") else groups) if self.is_global else []:
            for u, number, pair in REGISTER.findall(text):
                if number != "Z":
                    first = int(number) + (256 if u else 0)
                    self.addresses += [first, first + 1] if pair or self.root in BY_PAIRS else [first]


def registers(text):
    return [int(number) + (256 if u else 0) for u, number, _ in REGISTER.findall(text) if number != "Z"]


class Kernel:
    """The instructions of one kernel, those of the functions that it calls included."""

    def __init__(self, name):
        self.name, self.code, self.labels = name, [], {}
        self.base = self.size = None  # of its parameters in constant bank 0

    def without_wait(self):
        """The same kernel, but for its wait."""
        other = Kernel(self.name)
        other.__dict__.update(self.__dict__)
        other.code = [Instruction(i.address, None, "NOP", "") if i.root == "ACQBULK" else i for i in self.code]
        return other

    def next_of(self, i):
        """The instructions that may run after instruction i; None where that is not known."""
        instruction, behind = self.code[i], [i + 1] if i + 1 < len(self.code) else []
        root = instruction.root
        if root in ("EXIT", "RET", "KILL"):
            return [] if instruction.certain else behind
        if root in ("BRX", "BRXU", "JMX", "JMXU", "JMP"):
            return None
        if instruction.target is None or root in ("BSSY", "BSYNC", "MOV"):
            return behind if root not in ("BRA", "CALL") else None
        if instruction.target not in self.labels:
            return None
        there = [self.labels[instruction.target]]
        alone = TARGET.sub("", instruction.operands).strip(" ,") == ""
        return there if root == "BRA" and instruction.certain and alone and instruction.opcode == "BRA" else there + behind


def parse(listing):
    """The kernels of a listing, by name."""
    kernels, kernel, bank = {}, None, None
    for line in listing.splitlines():
        section = re.match(r"\s*\.section\s+([^,\s]+)", line)
        if section:
            name = section.group(1)
            kernel = kernels.setdefault(name[6:], Kernel(name[6:])) if name.startswith(".text.") else None
            info = name[9:] if name.startswith(".nv.info.") else None
            bank = [kernels.setdefault(info, Kernel(info))] if info else None
        elif bank is not None and "EIATTR_" in line:
            bank = bank[:1] + (["cbank"] if line.endswith("EIATTR_PARAM_CBANK") else [])
        elif bank is not None and len(bank) > 1:
            number = re.search(r"\.(?:short|word)\s+0x([0-9a-f]+)\s*$", line)
            if number and bank[0].base is None:
                value = int(number.group(1), 16)
                bank[0].base, bank[0].size = (value & 0xFFFF, value >> 16) if ".word" in line else (value, None)
            elif number and bank[0].size is None:
                bank[0].size = int(number.group(1), 16)
        elif kernel is not None:
            label, instruction = LABEL.match(line), INSTRUCTION.match(line)
            if label:
                kernel.labels[label.group(1)] = len(kernel.code)
            elif instruction:
                kernel.code.append(Instruction(*instruction.groups()))
    return {name: kernel for name, kernel in kernels.items() if kernel.code}


class Origins:
    """The sets of parameters, as bits, that registers may come from before each instruction."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.all = (1 << (kernel.size // 8)) - 1
        self.joins = set(kernel.labels.values())
        self.before = [None] * len(kernel.code)
        work = [(0, {})]
        while work:
            i, state = work.pop()
            while i is not None:
                known = self.before[i]
                if known is not None:
                    grown = {r: known.get(r, 0) | bits for r, bits in state.items() if bits & ~known.get(r, 0)}
                    if not grown:
                        break
                    known.update(grown)
                else:
                    self.before[i] = dict(state)
                state = self.after(i)
                following = kernel.next_of(i) or []
                work += [(other, state) for other in following[1:]]
                i = following[0] if following else None

    def of_parameter(self, text, width):
        if not re.fullmatch(r"0x[0-9a-f]+", text):
            return [self.all] * width
        at = int(text, 16)
        return [self.of_offset(at + 4 * k) for k in range(width)]

    def of_offset(self, at):
        if WINDOW <= at < WINDOW + WORD_BYTES:
            return WINDOW_BIT
        inside = self.kernel.base <= at < self.kernel.base + self.kernel.size
        return 1 << ((at - self.kernel.base) // 8) if inside else 0

    def after(self, i):
        instruction, state = self.kernel.code[i], self.before[i]
        results = instruction.results
        if instruction.root == "STL":
            spilled = state.get(LOCAL, 0)
            for r in instruction.sources:
                spilled |= self.wide(state, r, instruction.width)
            return {**state, LOCAL: spilled}
        if not results:
            return state
        state = dict(state)
        words = self.words(instruction, state, i)
        for result in results:
            for k, bits in enumerate(words):
                bits |= 0 if instruction.certain_result else state.get(result + k, 0)
                if bits:
                    state[result + k] = bits
                else:
                    state.pop(result + k, None)
        return state

    def wide(self, state, register, width):
        bits = 0
        for k in range(width):
            bits |= state.get(register + k, 0)
        return bits

    def words(self, instruction, state, i):
        """Of each register that is written."""
        width = instruction.width
        if instruction.root in ("LDC", "ULDC", "LDCU") and len(instruction.parameters) == 1 and not instruction.sources:
            return self.of_parameter(instruction.parameters[0], width)
        if instruction.root == "LDL":
            return [state.get(LOCAL, 0)] * width
        if instruction.is_global or instruction.root in ("LDS", "LDSM"):
            return [0] * width
        bits = self.all if instruction.unknown_bank else 0
        for text in instruction.parameters:
            for word in self.of_parameter(text, 1):
                bits |= word
        for r in instruction.sources:
            bits |= self.of_register(i, r)
        distances = IMMEDIATE.findall(instruction.operands)
        if bits & WINDOW_BIT and instruction.root in ("IADD3", "UIADD3") and len(distances) == 1:
            return [bits & ~WINDOW_BIT | self.of_offset(self.kernel.base + int(distances[0], 16))] * width
        return [bits] * width

    def of_register(self, i, register):
        """As it is when instruction i runs: what was computed under the predicate of i, just before, is certain then."""
        predicate = self.kernel.code[i].predicate
        j = i
        while predicate is not None and j > 0 and j not in self.joins:
            j -= 1
            earlier = self.kernel.code[j]
            place = [k for result in earlier.results for k in [register - result] if 0 <= k < earlier.width]
            if place and (earlier.predicate != predicate or len(earlier.results) != 1 or not earlier.first_result):
                break
            if place:
                return self.words(earlier, self.before[j], j)[place[0]]
            if re.search(r"\b%s\b" % predicate.lstrip("!"), earlier.operands):
                break
        return self.before[i].get(register, 0)

    def of_address(self, i):
        bits = 0
        for r in self.kernel.code[i].addresses:
            bits |= self.of_register(i, r)
        return bits


def before_wait(kernel):
    """The instructions that a thread may run before it has waited, and whether it may end so or go where is not known."""
    reached, work, problems = set(), [0], []
    while work:
        i = work.pop()
        if i in reached:
            continue
        reached.add(i)
        instruction = kernel.code[i]
        if instruction.root == "ACQBULK" and instruction.certain:
            continue
        following = kernel.next_of(i)
        if following is None:
            problems.append((i, "goes where is not known before the wait"))
        elif instruction.root in ("EXIT", "KILL") or (not following and instruction.root != "RET"):
            problems.append((i, "ends a thread that has not waited"))
        work += following or []
    return reached, problems


def reachable(kernel, start):
    """The instructions that may run behind that one."""
    reached, work = set(), list(kernel.next_of(start) or [])
    while work:
        i = work.pop()
        if i not in reached:
            reached.add(i)
            work += kernel.next_of(i) or []
    return reached


def reads_other_blocks(kernel):
    """Whether it has a cluster, and loads that are neither of global nor of the block's own memory."""
    roots = {instruction.root for instruction in kernel.code}
    return "UCGABAR_ARV" in roots and "LD" in roots


def behind_cluster_end(kernel):
    """What must not come behind the last arrival at the cluster's barrier."""
    if not reads_other_blocks(kernel):
        return []
    last = max(i for i, instruction in enumerate(kernel.code) if instruction.root == "UCGABAR_ARV")
    return [(i, "comes behind the end of the cluster") for i in reachable(kernel, last) if kernel.code[i].root in ("LD", "STG", "ST")]


def letters_of_words(kernel, parameters):
    """A letter for each 8 bytes of the parameters."""
    pointers, _, maps = parameters.partition("+")
    end = WORD_BYTES * len(pointers)
    gap = -(kernel.base + end) % MAP_ALIGNMENT if maps and kernel.base is not None else 0
    return pointers + "v" * (gap // WORD_BYTES) + "".join(letter * (MAP_BYTES // WORD_BYTES) for letter in maps)


def check_kernel(kernel, parameters):
    """Texts of what is wrong. parameters: a letter each, c for a constant, v for what other kernels may write or read; behind a +, those
    of the tensors that tensor maps are of."""
    parameters = letters_of_words(kernel, parameters)
    if kernel.size is None or kernel.size != 8 * len(parameters):
        return ["%s: the listing has no place for %d parameters" % (kernel.name, len(parameters))]
    constants = sum(1 << i for i, letter in enumerate(parameters) if letter == "c")
    early, problems = before_wait(kernel)
    problems += behind_cluster_end(kernel)
    origins = Origins(kernel)
    for i, instruction in enumerate(kernel.code):
        read_only = instruction.is_global and ".CONSTANT" in instruction.opcode
        if origins.before[i] is None or not instruction.is_global or not (read_only or i in early):
            continue
        bits = origins.of_address(i) & ~WINDOW_BIT
        if bits == 0 or bits & ~constants:
            names = ", ".join(str(p) for p in range(len(parameters)) if bits >> p & 1)
            what = "parameter %s" % names if names else "what is no parameter"
            problems.append((i, "uses %s %s" % (what, "before the wait" if i in early else "through the read-only path")))
    return ["%s /*%s*/ %s: %s" % (kernel.name, kernel.code[i].address, kernel.code[i].text, text) for i, text in sorted(problems)]


def check(listing, kernel, parameters):
    """As check_kernel, of a kernel of a listing."""
    kernels = parse(listing)
    if kernel not in kernels:
        return ["the listing has no kernel " + kernel]
    return check_kernel(kernels[kernel], parameters)


def accesses_before_wait(kernel):
    """The number of global accesses that may come before the wait."""
    return sum(kernel.code[i].is_global for i in before_wait(kernel)[0])
