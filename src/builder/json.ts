import { type ParseError, parse, printParseErrorCode } from 'jsonc-parser'
import * as z from 'zod'
import { Problem } from './build-problem.ts'
import { type Source, textOf } from './source.ts'

/** Reads a JSON settings file, which may have comments and trailing commas. */
export function readJson<T>(source: Source, file: string, schema: z.ZodType<T>): T {
  const text = textOf(source.get(file))
  const { value, errors } = parsed(text, file)
  const [first] = errors
  if (first) {
    const before = text.slice(0, first.offset).split('\n')
    const place = { file, line: before.length, column: (before.at(-1)?.length ?? 0) + 1 }
    throw new Problem(`Invalid JSON: ${printParseErrorCode(first.error)}`, place)
  }
  const { data, error } = schema.safeParse(value)
  if (error) throw new Problem(z.prettifyError(error).replaceAll('\n', ' '), { file })
  return data as T
}

function parsed(text: string, file: string): { value: unknown; errors: ParseError[] } {
  const errors: ParseError[] = []
  try {
    return { value: parse(text, errors, { allowTrailingComma: true }), errors }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error
    throw new Problem('Invalid JSON: nested too deeply', { file })
  }
}
