const DIGITS = String.raw`\d(?:_?\d)*`
const HEX_DIGITS = '[0-9a-fA-F](?:_?[0-9a-fA-F])*'
const INTEGER = `0[xX]_?${HEX_DIGITS}|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+|0(?:_?[0-7])*|[1-9](?:_?\\d)*`
const DECIMAL = String.raw`(?:${DIGITS}(?:\.(?:${DIGITS})?)?|\.${DIGITS})(?:[eE][+-]?${DIGITS})?`
const HEX_FLOAT = String.raw`0[xX](?:_?${HEX_DIGITS}(?:\.(?:${HEX_DIGITS})?)?|\.${HEX_DIGITS})[pP][+-]?${DIGITS}`
const FLOAT = `(?:${HEX_FLOAT}|${DECIMAL})`

/** A number literal of Go; {@link fitsNumber} checks its range. */
export const NUMBER = new RegExp(`[+-]?(?:(?:${FLOAT}[+-])?${FLOAT}i|${INTEGER}|${FLOAT})(?![\\p{L}\\p{Nd}_.])`, 'uy')

const IMAGINARY = new RegExp(`^(?:([+-]?${FLOAT})(?=[+-]))?([+-]?${FLOAT})i$`)
const WHOLE = new RegExp(`^([+-]?)(${INTEGER})$`)
const HEX = /^[+-]?0x([0-9a-f]*)\.?([0-9a-f]*)p(.*)$/i

/** Returns true if a literal of {@link NUMBER} fits an int64, a uint64, a float64 or a complex128. */
export function fitsNumber(text: string): boolean {
  const whole = WHOLE.exec(text)
  if (whole) return fitsInteger(whole[1] ?? '', whole[2] ?? '')
  const imaginary = IMAGINARY.exec(text)
  if (imaginary) return [imaginary[1] ?? '0', imaginary[2] ?? ''].every(isFinite64)
  // A decimal such as 09 is not an octal integer, and without a point or an exponent it is not a float either.
  return /[.ep]/i.test(text) && isFinite64(text)
}

function fitsInteger(sign: string, digits: string): boolean {
  const value = BigInt(digits.replaceAll('_', '').replace(/^0(?=\d)/, '0o'))
  if (sign === '') return value < 2n ** 64n
  return value < 2n ** 63n + (sign === '-' ? 1n : 0n)
}

function isFinite64(text: string): boolean {
  const digits = text.replaceAll('_', '')
  const [, whole = '', fraction = '', exponent] = HEX.exec(digits) ?? []
  if (exponent === undefined) return Number.isFinite(Number(digits))
  const mantissa = Number(`0x${whole}${fraction}`)
  return mantissa === 0 || Number.isFinite(mantissa * 2 ** (Number(exponent) - 4 * fraction.length))
}
