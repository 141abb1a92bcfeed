; What runs before main(): the cartridge entry point, a clean RAM, and the two
; routines that have to be exact about time.
;
; No interrupt is ever taken (IME stays 0): HALT still wakes up on the VBlank
; request, so the game needs no handlers and cannot be interrupted half way.

	.module crt0
	.globl	_main, _rows, _row_addresses, _rows_ready, _chunk, _chunk_address
	.globl	s__INITIALIZER, s__INITIALIZED, l__INITIALIZER

STACK_TOP	= 0xE000
RAM_START	= 0xC000
RAM_SIZE	= 0x2000
IF		= 0x0F
IE		= 0xFF
ROW_BYTES	= 20
CHUNK_BYTES	= 64

	.area	_HEADER (ABS)
	.org	0x100
	nop
	jp	start

	.org	0x150
start:
	di
	ld	sp, #STACK_TOP
	ld	hl, #RAM_START
	ld	bc, #RAM_SIZE
clear_ram:
	xor	a, a
	ld	(hl+), a
	dec	bc
	ld	a, b
	or	a, c
	jr	nz, clear_ram

	ld	de, #s__INITIALIZED
	ld	hl, #s__INITIALIZER
	ld	bc, #l__INITIALIZER
copy_initialised:
	ld	a, b
	or	a, c
	jr	z, ready
	ld	a, (hl+)
	ld	(de), a
	inc	de
	dec	bc
	jr	copy_initialised
ready:
	ld	a, #0x01
	ldh	(IE), a
	jp	_main

; The order of these lines is the order of the areas in memory.
	.area	_CODE
	.area	_HOME
	.area	_INITIALIZER
	.area	_DATA
	.area	_INITIALIZED

	.area	_CODE

; void wait_vblank(void)
_wait_vblank::
	xor	a, a
	ldh	(IF), a
	halt
	nop
	ret

; void present(void): at most three background rows and 64 bytes of a picture,
; about 900 of the 1140 machine cycles of VBlank. Emulators disagree about
; writes that come later.
_present::
	ld	hl, #_rows
	ld	bc, #_row_addresses
	ld	a, (_rows_ready)
next_row:
	or	a, a
	jr	z, rows_done
	push	af
	ld	a, (bc)
	ld	e, a
	inc	bc
	ld	a, (bc)
	ld	d, a
	inc	bc
	push	bc
	ld	b, #ROW_BYTES / 4
; A row begins at a multiple of 32, so its addresses differ in the low byte alone.
copy_row:
	ld	a, (hl+)
	ld	(de), a
	inc	e
	ld	a, (hl+)
	ld	(de), a
	inc	e
	ld	a, (hl+)
	ld	(de), a
	inc	e
	ld	a, (hl+)
	ld	(de), a
	inc	e
	dec	b
	jr	nz, copy_row
	pop	bc
	pop	af
	dec	a
	jr	next_row
rows_done:
	ld	(_rows_ready), a

	ld	hl, #_chunk
	ld	a, (hl+)
	ld	h, (hl)
	ld	l, a
	or	a, h
	ret	z
	ld	a, (_chunk_address)
	ld	e, a
	ld	a, (_chunk_address + 1)
	ld	d, a
	ld	b, #CHUNK_BYTES / 4
; A chunk begins at a multiple of 64, for the same reason.
copy_chunk:
	ld	a, (hl+)
	ld	(de), a
	inc	e
	ld	a, (hl+)
	ld	(de), a
	inc	e
	ld	a, (hl+)
	ld	(de), a
	inc	e
	ld	a, (hl+)
	ld	(de), a
	inc	e
	dec	b
	jr	nz, copy_chunk
	xor	a, a
	ld	(_chunk), a
	ld	(_chunk + 1), a
	ret
