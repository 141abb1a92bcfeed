	.module present
	.globl	_sprites, _row, _row_address

OAM		= 0xFE00
SPRITE_BYTES	= 48
ROW_BYTES	= 20

	.area	_CODE

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
