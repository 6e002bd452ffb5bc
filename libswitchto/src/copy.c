// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "copy.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define NOTE_NAME "libswitchto"
#define NOTE_TYPE 1 /* the layout of struct copy */

struct copy {
	atomic_bool in_use;
	/* Another copy is, or was when this one was loaded. */
	atomic_bool other_in_use;
};

/* Named by the note below. */
__attribute__((visibility("hidden"), used)) struct copy switchto_copy;

/*
 * The copies do not know each other's symbols: those of a program are not visible to
 * its plugins, nor those of one plugin to another. What the dynamic linker tells
 * everybody of each object are its program headers. So each copy leaves an ELF note in
 * the object that it is a part of: how far it is from there to its struct copy.
 */
__asm__(".pushsection .note.switchto, \"a\", %note\n"
	"	.balign 4\n"
	"	.long 2f - 1f\n"
	"	.long 4f - 3f\n"
	"	.long 1\n"
	"1:	.asciz \"libswitchto\"\n"
	"2:	.balign 4\n"
	"3:	.long switchto_copy - 3b\n"
	"4:	.balign 4\n"
	".popsection");

typedef void (*visitor)(struct copy *other);

static size_t aligned(size_t size, size_t alignment)
{
	return (size + alignment - 1) & ~(alignment - 1);
}

/* Calls @visit for the copy that one of the notes from @at to @end leads to. */
static void visit_notes(const char *at, const char *end, size_t alignment, visitor visit)
{
	while ((size_t)(end - at) >= sizeof(ElfW(Nhdr))) {
		const ElfW(Nhdr) *note = (const void *)at;
		const char *name = at + sizeof(*note);
		size_t name_size = aligned(note->n_namesz, alignment);
		size_t size = sizeof(*note) + name_size + aligned(note->n_descsz, alignment);

		if (size > (size_t)(end - at))
			return;
		if (note->n_type == NOTE_TYPE && note->n_namesz == sizeof(NOTE_NAME) &&
		    note->n_descsz == sizeof(int32_t) &&
		    memcmp(name, NOTE_NAME, sizeof(NOTE_NAME)) == 0) {
			const char *from = name + name_size;
			int32_t offset;
			struct copy *copy;

			memcpy(&offset, from, sizeof(offset));
			copy = (struct copy *)((uintptr_t)from + (uintptr_t)offset);
			if (copy != &switchto_copy)
				visit(copy);
		}
		at += size;
	}
}

static int visit_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	const visitor *visit = arg;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		const char *notes = (const char *)(info->dlpi_addr + header->p_vaddr);

		if (header->p_type == PT_NOTE)
			visit_notes(notes, notes + header->p_memsz, header->p_align == 8 ? 8 : 4,
				    *visit);
	}
	return 0;
}

static void visit_others(visitor visit)
{
	dl_iterate_phdr(visit_object, &visit);
}

static void ask(struct copy *other)
{
	if (atomic_load(&other->in_use))
		atomic_store(&switchto_copy.other_in_use, true);
}

static void tell(struct copy *other)
{
	atomic_store(&other->other_in_use, true);
}

/* What a call in a signal handler needs to know is found out here. */
static __attribute__((constructor)) void loaded(void)
{
	visit_others(ask);
}

static int refuse(void)
{
	static const char message[] =
		"libswitchto: wanted to be the only copy in this process, found another one in use; "
		"link the program and its plugins with the shared library\n";
	static atomic_flag said = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&said) &&
	    write(STDERR_FILENO, message, sizeof(message) - 1) < 0) {
		/* Nobody reads it, and ELIBMAX says the same. */
	}
	return ELIBMAX;
}

/* Called under the dynamic linker's lock, which no two copies have at a time. */
static int use(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)info;
	(void)size;
	(void)arg;
	visit_others(ask);
	if (!atomic_load(&switchto_copy.other_in_use)) {
		atomic_store(&switchto_copy.in_use, true);
		visit_others(tell);
	}
	return 1;
}

int switchto_copy_use(void)
{
	dl_iterate_phdr(use, NULL);
	return atomic_load(&switchto_copy.other_in_use) ? refuse() : 0;
}

int switchto_copy_use_in_handler(void)
{
	if (atomic_load(&switchto_copy.other_in_use))
		return refuse();
	/* So that others find it. */
	atomic_store(&switchto_copy.in_use, true);
	return 0;
}
