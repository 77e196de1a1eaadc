import { Problem } from './build-problem.ts'
import { LIMITS } from './limits.ts'

const MANY = Symbol('any number of them')
type Sequence<T> = readonly (T | typeof MANY)[]
type Char = (char: string) => boolean
/** Of a path, between its slashes. */
type Segment = Sequence<Char>

/**
 * Whether a path is one that any of the patterns names: `*`, `?`, `[a-z]`, `[!a]` within a segment, `**` for any number of segments,
 * `{a,b}`, and `\` before what stands for itself. No regular expression is made of them, as these can take for ever. Throws Problem.
 */
export function openGlobs(patterns: readonly string[]): (path: string) => boolean {
  const globs = alternativesOf(patterns).map(parse)
  let steps = 0
  const step = () => {
    steps += 1
    if (steps > LIMITS.patternSteps) throw new Problem('The static patterns take too long to match: write simpler ones')
  }
  const ofSegment = (segment: Segment, text: string) => {
    const isOfChar = (char: Char, one: string) => {
      step()
      return char(one)
    }
    return matches(segment, text, isOfChar)
  }
  return (path) => {
    const segments = path.split('/')
    return globs.some((glob) => matches(glob, segments, ofSegment))
  }
}

/** Where it fails it goes back to the last MANY alone: whatever the ones before it take, this one can take as well. */
function matches<P, S>(pattern: Sequence<P>, subject: ArrayLike<S>, isOf: (part: P, one: S) => boolean): boolean {
  let at = 0
  let last: { at: number; from: number } | undefined
  for (let n = 0; n < subject.length; ) {
    const part = pattern[at]
    if (part === MANY) {
      last = { at, from: n }
      at += 1
    } else if (part !== undefined && isOf(part, subject[n] as S)) {
      at += 1
      n += 1
    } else if (last) {
      last.from += 1
      at = last.at + 1
      n = last.from
    } else return false
  }
  return pattern.slice(at).every((part) => part === MANY)
}

const INNERMOST = /(?<!\\)\{((?:\\.|[^{}\\])*,(?:\\.|[^{}\\])*)\}/

function alternativesOf(patterns: readonly string[]): string[] {
  const waiting = [...patterns]
  const done = new Set<string>()
  for (let pattern = waiting.pop(); pattern !== undefined; pattern = waiting.pop()) {
    const [braces, inside = ''] = INNERMOST.exec(pattern) ?? []
    if (braces === undefined) done.add(pattern)
    else waiting.push(...inside.split(',').map((one) => (pattern as string).replace(braces, () => one)))
    if (waiting.length + done.size > LIMITS.patternAlternatives) {
      throw new Problem(`The static patterns stand for more than ${LIMITS.patternAlternatives} with their braces`)
    }
  }
  return [...done]
}

const parse = (pattern: string): Sequence<Segment> =>
  pattern.split('/').map((segment) => (segment === '**' ? MANY : parseSegment(segment)))

const PART = /\\(.)|(\*+)|(\?)|\[([!^]?)(\]?[^\]]*)\]|(.)/gsu

const parseSegment = (segment: string): Segment =>
  Array.from(segment.matchAll(PART), ([, escaped, many, any, not, set, plain]) => {
    if (many) return MANY
    if (any) return () => true
    if (set === undefined) return (char) => char === (escaped ?? plain)
    const isIn = charsOf(set)
    return not ? (char) => !isIn(char) : isIn
  })

function charsOf(set: string): Char {
  const ranges = Array.from(
    set.matchAll(/(.)-(.)|(.)/gsu),
    ([, from, to, one = '']) => [from ?? one, to ?? one] as const,
  )
  return (char) => ranges.some(([from, to]) => from <= char && char <= to)
}
