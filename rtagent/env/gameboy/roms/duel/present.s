	.module present
	.globl	_rows, _row_addresses, _rows_ready, _chunk, _chunk_address

ROW_BYTES	= 20
CHUNK_BYTES	= 64

	.area	_CODE

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
