"""Which processors work goes to that is not to disturb other work."""


def parse_list(text):
    """[0, 1, 8] of "0-1,8", as Linux writes sets of processors."""
    numbers = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def groups_of_cores(processors, siblings, count, size):
    """(`count` groups of `size` of these processors, whether no core is in two groups). `siblings`: of each processor, all threads of its core;
    one that is not there has a core of its own. The processors of a group are of different cores if possible, and then each group's cores are its
    own as far as there are enough cores. No groups: there are too few processors."""
    if count * size > len(processors):
        return [], False
    cores = {}
    for processor in sorted(processors):
        cores.setdefault(min(siblings.get(processor, [processor])), []).append(processor)
    # The first threads of all cores, then their second ones.
    deepest = max(len(threads) for threads in cores.values())
    ordered = [threads[depth] for depth in range(deepest) for threads in cores.values() if depth < len(threads)]
    groups = [tuple(ordered[i * size:(i + 1) * size]) for i in range(count)]
    return groups, count * size <= len(cores)
