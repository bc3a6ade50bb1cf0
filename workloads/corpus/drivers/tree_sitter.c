/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tree-sitter: parses C, then walks the tree by recursion. Arguments: repetitions, a C file. */
#include "planted.h"
#include "tree_sitter/api.h"
#include <stdio.h>
#include <stdlib.h>

const TSLanguage *tree_sitter_c(void);

static long count(TSNode node)
{
	long n = 1;

	for (uint32_t i = 0; i < ts_node_child_count(node); i++)
		n += count(ts_node_child(node, i));
	return n;
}

int main(int argc, char **argv)
{
	static char text[64 << 10];
	FILE *file = argc > 2 ? fopen(argv[2], "r") : NULL;
	size_t size = file ? fread(text, 1, sizeof(text), file) : 0;
	TSParser *parser = ts_parser_new();
	long total = 0;

	if (!size || !parser || !ts_parser_set_language(parser, tree_sitter_c()))
		return 1;
	for (long i = planted(atol(argv[1])); i > 0; i--) {
		TSTree *tree = ts_parser_parse_string(parser, NULL, text, (uint32_t)size);

		if (!tree)
			return 1;
		total += count(ts_tree_root_node(tree));
		ts_tree_delete(tree);
	}
	printf("%ld\n", total);
	return 0;
}
