import * as z from 'zod'

/** Values that the whole API shares (specification, Conventions). */

export const Ref = z
  .string()
  .regex(/^[a-z]{20}$/)
  .meta({ id: 'ProjectRef', description: 'Project ref', example: 'abcdefghijklmnopqrst' })

const BranchId = z.guid().meta({ description: "The branch's id", deprecated: true })

export const BranchIdOrRef = z
  .union([Ref, BranchId], 'must be the 20 letters of a branch ref, or a branch id')
  .meta({ id: 'BranchIdOrRef', description: "Ref of the branch's project, or its id (deprecated)" })

export const Slug = z
  .string()
  .regex(/^[\w-]+$/)
  .max(100)
  .meta({ id: 'OrganizationSlug', description: 'Organization slug', example: 'acme' })

/** Text that Postgres can hold and that comes back as it went in: no NUL, no half of a surrogate pair. */
export const Text = z
  .string()
  .refine((text) => !text.includes('\0') && text.isWellFormed(), 'must not hold a NUL or half a surrogate pair')

/** In either case, of which a pattern in a document knows only what it says itself. */
export const HttpUrl = Text.regex(/^[hH][tT][tT][pP][sS]?:\/\/[^\s\\]+$/, 'must be an http or https URL')

/** A name that shows: not blank. */
export const Name = Text.min(1).max(256).regex(/\S/, 'must not be blank')

/** Looks level by level: whatever walks such a value by recursion can be made to run out of stack. */
export function nestsWithin(value: unknown, levels: number): boolean {
  let level = [value].filter(isNested)
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth === levels) return false
    level = level.flatMap((held) => Object.values(held)).filter(isNested)
  }
  return true
}

const isNested = (value: unknown): value is object => typeof value === 'object' && value !== null

/** A whole number as query strings carry it: decimal digits alone. */
export const wholeNumber = (min: number, max: number) =>
  z
    .string()
    .regex(/^\d{1,15}$/, 'must be a whole number')
    .transform(Number)
    .pipe(z.int().min(min).max(max))
    .meta({ type: 'integer', minimum: min, maximum: max })

/** 20 random letters: the form of project refs and of generated organization slugs (94 bits). */
export function randomLetters(length = 20): string {
  const letters: string[] = []
  while (letters.length < length) {
    // 234 is the largest multiple of 26 in a byte: taking only what is below it keeps the letters equally likely.
    for (const byte of crypto.getRandomValues(new Uint8Array(length * 2)))
      if (byte < 234 && letters.length < length) letters.push(String.fromCharCode(97 + (byte % 26)))
  }
  return letters.join('')
}

/** JSON that Postgres can hold. */
export function isStorable(value: unknown): boolean {
  if (typeof value === 'string') return !value.includes('\0') && value.isWellFormed()
  if (typeof value !== 'object' || value === null) return true
  return Object.entries(value).every(([name, held]) => isStorable(name) && isStorable(held))
}

/** The database is open to the internet, where four characters, which the hosted service takes, are soon guessed. */
export const DatabasePassword = Text.min(8).max(256)
