import { parseError } from '../data-api-error.ts'

const NAME = /[\p{L}\p{N}_ $]/u

/** Thrown within `attempt`, which discards it: creating an error for each column of a long `select` takes long. */
const ATTEMPT_FAILED = new Error('The attempt failed')

/** Reads the grammar of query parameters from left to right. */
export class Scanner {
  readonly text: string
  at = 0
  private readonly label: string
  private attempts = 0

  constructor(text: string, label: string) {
    this.text = text
    this.label = label
  }

  get isAtEnd(): boolean {
    return this.at >= this.text.length
  }

  peek(): string {
    return this.text[this.at] ?? ''
  }

  startsWith(token: string): boolean {
    return this.text.startsWith(token, this.at)
  }

  /** Skips the token if it comes next. */
  take(token: string): boolean {
    if (!this.startsWith(token)) return false
    this.at += token.length
    return true
  }

  expect(token: string): void {
    if (!this.take(token)) this.fail(`"${token}"`)
  }

  skipBlanks(): void {
    while (this.peek() === ' ' || this.peek() === '\t') this.at += 1
  }

  /** Returns the result of `read`. If that fails, goes back to where it began and returns undefined. */
  attempt<Value>(read: () => Value): Value | undefined {
    const { at } = this
    this.attempts += 1
    try {
      return read()
    } catch {
      this.at = at
      return undefined
    } finally {
      this.attempts -= 1
    }
  }

  /** Values that are separated by commas, with blanks around them. */
  takeList<Value>(read: () => Value): Value[] {
    const values: Value[] = []
    do {
      this.skipBlanks()
      values.push(read())
      this.skipBlanks()
    } while (this.take(','))
    return values
  }

  /** Like `takeList`, up to the end of the text. */
  takeRestAsList<Value>(read: () => Value): Value[] {
    const values = this.takeList(read)
    if (!this.isAtEnd) this.fail('"," or end of input')
    return values
  }

  takeWhile(isPart: (character: string) => boolean): string {
    const start = this.at
    while (!this.isAtEnd && isPart(this.peek())) this.at += 1
    return this.text.slice(start, this.at)
  }

  /** A name: letters, digits, `_`, `$`, blanks inside, and dashes that begin no arrow; or any text in double quotes. */
  takeName(): string {
    if (this.peek() === '"') return this.takeQuoted() || this.fail('a name inside the quotes')
    const start = this.at
    for (;;) {
      const codePoint = String.fromCodePoint(this.text.codePointAt(this.at) ?? 0)
      if (!this.isAtEnd && NAME.test(codePoint)) this.at += codePoint.length
      else if (this.peek() === '-' && this.text[this.at + 1] !== '>' && this.at > start) this.at += 1
      else break
    }
    const name = this.text.slice(start, this.at).trim()
    if (name === '') this.fail('field name (* or [a..z0..9_$])')
    return name
  }

  /** A text in double quotes, in which a backslash escapes the next character. */
  takeQuoted(): string {
    this.expect('"')
    let value = ''
    while (this.peek() !== '"') {
      if (this.isAtEnd) this.fail('"\\""')
      if (this.peek() === '\\') this.at += 1
      value += this.peek()
      this.at += 1
    }
    this.at += 1
    return value
  }

  fail(expected: string): never {
    const next = this.text.codePointAt(this.at)
    const found = next === undefined ? 'unexpected end of input' : `unexpected "${String.fromCodePoint(next)}"`
    this.failWith(`${found} expecting ${expected}`)
  }

  failWith(details: string): never {
    if (this.attempts > 0) throw ATTEMPT_FAILED
    throw parseError(`"failed to parse ${this.label} (${this.text})" (line 1, column ${this.at + 1})`, details)
  }
}
