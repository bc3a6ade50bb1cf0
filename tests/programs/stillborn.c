/*
 * stillborn FILE SECONDS: makes processes that the kernel kills inside execve, one after the other, for so many seconds. What
 * they execute, written to FILE, is an ELF file with a segment above what a program may have: the old program is gone when
 * that is found out, and nothing of the new one is mapped yet.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const struct {
	Elf64_Ehdr head;
	Elf64_Phdr segment;
} image = {
	.head = {
		.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
		.e_type = ET_EXEC,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_phoff = sizeof(Elf64_Ehdr),
		.e_ehsize = sizeof(Elf64_Ehdr),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = 1,
	},
	.segment = {
		.p_type = PT_LOAD,
		.p_flags = PF_R | PF_X,
		.p_vaddr = 0xfffffffffffff000,
		.p_filesz = sizeof(Elf64_Ehdr),
		.p_memsz = sizeof(Elf64_Ehdr),
		.p_align = 4096,
	},
};

int main(int argc, char **argv)
{
	time_t end = time(NULL) + atol(argv[2]);
	int file = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0700), pid, status;

	if (argc != 3 || write(file, &image, sizeof(image)) != sizeof(image) || close(file))
		return 1;
	while (time(NULL) < end) {
		pid = vfork();
		if (!pid) {
			execl(argv[1], argv[1], (char *)NULL);
			_exit(1);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
			return 1;
	}
	return 0;
}
