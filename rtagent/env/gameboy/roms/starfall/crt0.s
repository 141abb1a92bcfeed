; What runs before main(): the cartridge entry point, a clean RAM, and the two
; routines that have to be exact about time.
;
; No interrupt is ever taken (IME stays 0): HALT still wakes up on the VBlank
; request, so the game needs no handlers and cannot be interrupted half way.

	.module crt0
	.globl	_main, _sprites, _row, _row_address
	.globl	s__INITIALIZER, s__INITIALIZED, l__INITIALIZER

STACK_TOP	= 0xE000
RAM_START	= 0xC000
RAM_SIZE	= 0x2000
OAM		= 0xFE00
IF		= 0x0F
IE		= 0xFF
SPRITE_BYTES	= 48
ROW_BYTES	= 20

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

; void present(void): sprites and one background row, about 660 of the 1140
; machine cycles of VBlank. Emulators disagree about writes that come later.
_present::
	ld	hl, #_sprites
	ld	de, #OAM
	ld	b, #SPRITE_BYTES
copy_sprites:
	ld	a, (hl+)
	ld	(de), a
	inc	e
	dec	b
	jr	nz, copy_sprites

	ld	hl, #_row_address
	ld	a, (hl+)
	ld	d, (hl)
	ld	e, a
	ld	hl, #_row
	ld	b, #ROW_BYTES
copy_row:
	ld	a, (hl+)
	ld	(de), a
	inc	de
	dec	b
	jr	nz, copy_row
	ret
