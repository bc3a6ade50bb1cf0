/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* zstd: level 3, back again, level 9. Argument: repetitions. */
#include "text.h"
#include "zstd.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 512 << 10 };

int main(int argc, char **argv)
{
	size_t bound = ZSTD_compressBound(SIZE), total = 0;
	char *text = malloc(SIZE), *packed = malloc(bound), *back = malloc(SIZE);

	if (!text || !packed || !back)
		return 1;
	fill_text(text, SIZE);
	for (int i = argc > 1 ? atoi(argv[1]) : 1; i > 0; i--) {
		size_t n = ZSTD_compress(packed, bound, text, SIZE, 3);

		if (ZSTD_isError(n) || ZSTD_decompress(back, SIZE, packed, n) != SIZE || memcmp(text, back, SIZE))
			return 1;
		total += n;
		n = ZSTD_compress(packed, bound, text, SIZE / 4, 9);
		if (ZSTD_isError(n))
			return 1;
		total += n;
	}
	printf("%zu\n", total);
	return 0;
}
