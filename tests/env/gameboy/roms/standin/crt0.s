; Entry point and clean RAM. No interrupt is ever taken: HALT wakes up on the VBlank request.

	.module crt0
	.globl	_main

	.area	_HEADER (ABS)
	.org	0x100
	nop
	jp	start

	.org	0x150
start:
	di
	ld	sp, #0xE000
	ld	hl, #0xC000
	ld	bc, #0x2000
clear_ram:
	xor	a, a
	ld	(hl+), a
	dec	bc
	ld	a, b
	or	a, c
	jr	nz, clear_ram
	ld	a, #0x01
	ldh	(0xFF), a
	jp	_main

	.area	_CODE
	.area	_HOME
	.area	_INITIALIZER
	.area	_DATA
	.area	_INITIALIZED

	.area	_CODE

; void wait_vblank(void)
_wait_vblank::
	xor	a, a
	ldh	(0x0F), a
	halt
	nop
	ret
