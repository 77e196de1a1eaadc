import { type ParseError, parse, printParseErrorCode } from 'jsonc-parser'
import * as z from 'zod'
import { Problem } from './problem.ts'
import { type Source, textOf } from './source.ts'

/** A file of settings as people write them, with comments and trailing commas. */
export function readJson<T>(source: Source, file: string, schema: z.ZodType<T>): T {
  const text = textOf(source.get(file))
  const errors: ParseError[] = []
  const value: unknown = parse(text, errors, { allowTrailingComma: true })
  const [first] = errors
  if (first) {
    const before = text.slice(0, first.offset).split('\n')
    const place = { file, line: before.length, column: (before.at(-1)?.length ?? 0) + 1 }
    throw new Problem(`This is no JSON: ${printParseErrorCode(first.error)}`, place)
  }
  const { data, error } = schema.safeParse(value)
  if (error) throw new Problem(z.prettifyError(error).replaceAll('\n', ' '), { file })
  return data as T
}
