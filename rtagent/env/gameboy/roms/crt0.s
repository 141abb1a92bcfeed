; What runs before main() of every game: the cartridge entry point and a clean RAM;
; and the wait for a picture.
;
; No interrupt is ever taken (IME stays 0): HALT still wakes up on the VBlank
; request, so the game needs no handlers and cannot be interrupted half way.

	.module crt0
	.globl	_main
	.globl	s__INITIALIZER, s__INITIALIZED, l__INITIALIZER

STACK_TOP	= 0xE000
RAM_START	= 0xC000
RAM_SIZE	= 0x2000
IF		= 0x0F
IE		= 0xFF

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
