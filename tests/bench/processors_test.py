"""Which processors networks that are tuned at once get."""
import unittest

from processors import groups_of_cores, parse_list


class Groups(unittest.TestCase):

    def test_lists_of_linux(self):
        self.assertEqual(parse_list("3\n"), [3])
        self.assertEqual(parse_list("0-2,8,10-11"), [0, 1, 2, 8, 10, 11])

    def test_without_siblings_neighbours_make_a_group(self):
        self.assertEqual(groups_of_cores(range(6), {}, 3, 2), ([(0, 1), (2, 3), (4, 5)], True))

    def test_a_group_has_threads_of_different_cores(self):
        siblings = {0: [0, 1], 1: [0, 1], 2: [2, 3], 3: [2, 3], 4: [4, 5], 5: [4, 5], 6: [6, 7], 7: [6, 7]}
        self.assertEqual(groups_of_cores(range(8), siblings, 2, 2), ([(0, 2), (4, 6)], True))

    def test_cores_are_shared_only_where_there_are_too_few(self):
        siblings = {0: [0, 4], 4: [0, 4], 1: [1, 5], 5: [1, 5], 2: [2, 6], 6: [2, 6], 3: [3, 7], 7: [3, 7]}
        self.assertEqual(groups_of_cores(range(8), siblings, 3, 2), ([(0, 1), (2, 3), (4, 5)], False))

    def test_a_core_of_which_only_one_thread_may_be_used(self):
        self.assertEqual(groups_of_cores([1, 2, 3], {1: [0, 1], 2: [2, 3], 3: [2, 3]}, 1, 2), ([(1, 2)], True))

    def test_too_few_processors_make_no_groups(self):
        self.assertEqual(groups_of_cores(range(5), {}, 3, 2), ([], False))


if __name__ == "__main__":
    unittest.main()
