/*
 * main < outer < (stub of the procedure linkage table), and from there main < outer < plt_nothing. With `lazy`, the
 * address that the stub found is taken back each time, so that the dynamic linker looks the function up again:
 * main < outer < _dl_runtime_resolve_xsavec < _dl_fixup and what that calls.
 */
#include "program.h"
#include <elf.h>
#include <link.h>

void plt_nothing(void);

NOINLINE void outer(void)
{
	while (!stop)
		for (int i = 0; i < 10000; i++)
			plt_nothing();
}

/* The only entry of the table that is not bound when the program starts is that of a function not called yet. */
NOINLINE void outer_lazy(Elf64_Addr *entry)
{
	Elf64_Addr unbound = *entry;

	while (!stop) {
		plt_nothing();
		*entry = unbound;
	}
}

/* The global offset table's entry of `plt_nothing`: where its relocation says. */
static Elf64_Addr *entry_of(const char *name)
{
	Elf64_Rela *relocations = NULL;
	Elf64_Sym *symbols = NULL;
	const char *strings = NULL;
	size_t size = 0;

	for (Elf64_Dyn *dyn = _DYNAMIC; dyn->d_tag != DT_NULL; dyn++) {
		if (dyn->d_tag == DT_JMPREL)
			relocations = (Elf64_Rela *)dyn->d_un.d_ptr;
		else if (dyn->d_tag == DT_PLTRELSZ)
			size = dyn->d_un.d_val;
		else if (dyn->d_tag == DT_SYMTAB)
			symbols = (Elf64_Sym *)dyn->d_un.d_ptr;
		else if (dyn->d_tag == DT_STRTAB)
			strings = (const char *)dyn->d_un.d_ptr;
	}
	for (size_t i = 0; i < size / sizeof(*relocations); i++)
		if (!strcmp(strings + symbols[ELF64_R_SYM(relocations[i].r_info)].st_name, name))
			return (Elf64_Addr *)(_r_debug.r_map->l_addr + relocations[i].r_offset);
	return NULL;
}

int main(int argc, char **argv)
{
	start_clock(argc, argv);
	if (argc > 2 && !strcmp(argv[2], "lazy")) {
		Elf64_Addr *entry = entry_of("plt_nothing");

		if (!entry)
			return 1;
		outer_lazy(entry);
	} else {
		outer();
	}
	return 0;
}
