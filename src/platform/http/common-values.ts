import * as z from 'zod'
import { REF } from '../identifiers.ts'

/** Schemas that the whole API shares (specification, Conventions). */

export const Ref = z
  .string()
  .regex(REF)
  .meta({ id: 'ProjectRef', description: 'Project ref', example: 'abcdefghijklmnopqrst' })

const BranchId = z.guid().meta({ description: "The branch's id", deprecated: true })

export const BranchIdOrRef = z
  .union([Ref, BranchId], 'must be a branch ref of 20 lower-case letters, or a branch id')
  .meta({ id: 'BranchIdOrRef', description: "Ref of the branch's project, or its id (deprecated)" })

export const Slug = z
  .string()
  .regex(/^[\w-]+$/)
  .max(100)
  .meta({ id: 'OrganizationSlug', description: 'Organization slug', example: 'acme' })

/** Text that Postgres can store unchanged: without NUL characters and lone surrogates. */
export const Text = z
  .string()
  .refine((text) => !text.includes('\0') && text.isWellFormed(), 'must not contain NUL characters or lone surrogates')

/** An http or https URL. Both cases are in the pattern, because patterns in OpenAPI documents have no flags. */
export const HttpUrl = Text.regex(/^[hH][tT][tT][pP][sS]?:\/\/[^\s\\]+$/, 'must be an http or https URL')

/** A name that is not blank. */
export const Name = Text.min(1).max(256).regex(/\S/, 'must not be blank')

/** Whether a JSON value is nested at most `levels` deep. Iterates, because recursion over untrusted input can exhaust the stack. */
export function isDepthAtMost(value: unknown, levels: number): boolean {
  let level = [value].filter(isNested)
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth === levels) return false
    level = level.flatMap((container) => Object.values(container)).filter(isNested)
  }
  return true
}

const isNested = (value: unknown): value is object => typeof value === 'object' && value !== null

/** A whole number in a query string: decimal digits only. */
export const wholeNumber = (min: number, max: number) =>
  z
    .string()
    .regex(/^\d{1,15}$/, 'must be a whole number')
    .transform(Number)
    .pipe(z.int().min(min).max(max))
    .meta({ type: 'integer', minimum: min, maximum: max })

/** Generates random letters. 20 of them (94 bits) are a project ref or a generated organization slug. */
export function randomLetters(length = 20): string {
  const letters: string[] = []
  while (letters.length < length) {
    // 234 is the largest multiple of 26 in a byte: using only smaller bytes makes all letters equally likely.
    for (const byte of crypto.getRandomValues(new Uint8Array(length * 2)))
      if (byte < 234 && letters.length < length) letters.push(String.fromCharCode(97 + (byte % 26)))
  }
  return letters.join('')
}

/** Whether Postgres can store a JSON value unchanged. */
export function isStorable(value: unknown): boolean {
  if (typeof value === 'string') return !value.includes('\0') && value.isWellFormed()
  if (typeof value !== 'object' || value === null) return true
  return Object.entries(value).every(([name, member]) => isStorable(name) && isStorable(member))
}

/** At least 8 characters: the hosted service accepts 4, but those are quickly guessed in a database that is open to the internet. */
export const DatabasePassword = Text.min(8).max(256)
