/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* libdeflate: level 6 and back, checksums. Argument: repetitions. */
#include "libdeflate.h"
#include "text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 512 << 10 };

int main(int argc, char **argv)
{
	struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(6);
	struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();
	char *text = malloc(SIZE), *packed = malloc(SIZE), *back = malloc(SIZE);
	size_t total = 0;

	if (!compressor || !decompressor || !text || !packed || !back)
		return 1;
	fill_text(text, SIZE);
	for (int i = argc > 1 ? atoi(argv[1]) : 1; i > 0; i--) {
		size_t n = libdeflate_gzip_compress(compressor, text, SIZE, packed, SIZE);

		if (!n || libdeflate_gzip_decompress(decompressor, packed, n, back, SIZE, NULL) || memcmp(text, back, SIZE))
			return 1;
		total += n;
	}
	printf("%zu\n", total);
	return 0;
}
