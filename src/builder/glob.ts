import { Problem } from './build-problem.ts'
import { LIMITS } from './limits.ts'

const ANY_NUMBER = Symbol('any number')
type Sequence<T> = readonly (T | typeof ANY_NUMBER)[]
type CharMatcher = (char: string) => boolean
/** Pattern of one path segment. */
type Segment = Sequence<CharMatcher>

/**
 * Returns a function that tests a path against glob patterns: `*`, `?`, `[a-z]` and `[!a]` within a segment, `**` for
 * any number of segments, `{a,b}`, and `\` to escape a character. Regular expressions are not used, because
 * backtracking could take forever. Throws Problem.
 */
export function openGlobs(patterns: readonly string[]): (path: string) => boolean {
  const globs = alternativesOf(patterns).map(parse)
  let steps = 0
  const step = () => {
    steps += 1
    if (steps > LIMITS.patternSteps) throw new Problem('The static patterns take too long to match: use simpler ones')
  }
  const matchesSegment = (segment: Segment, text: string) => {
    const matchesChar = (char: CharMatcher, one: string) => {
      step()
      return char(one)
    }
    return matches(segment, text, matchesChar)
  }
  return (path) => {
    const segments = path.split('/')
    return globs.some((glob) => matches(glob, segments, matchesSegment))
  }
}

/** Backtracks only to the last ANY_NUMBER: it can match whatever an earlier one could. */
function matches<P, S>(pattern: Sequence<P>, subject: ArrayLike<S>, isMatch: (part: P, one: S) => boolean): boolean {
  let at = 0
  let last: { at: number; from: number } | undefined
  for (let n = 0; n < subject.length; ) {
    const part = pattern[at]
    if (part === ANY_NUMBER) {
      last = { at, from: n }
      at += 1
    } else if (part !== undefined && isMatch(part, subject[n] as S)) {
      at += 1
      n += 1
    } else if (last) {
      last.from += 1
      at = last.at + 1
      n = last.from
    } else return false
  }
  return pattern.slice(at).every((part) => part === ANY_NUMBER)
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
      throw new Problem(`The static patterns expand to more than ${LIMITS.patternAlternatives}: use fewer braces`)
    }
  }
  return [...done]
}

const parse = (pattern: string): Sequence<Segment> =>
  pattern.split('/').map((segment) => (segment === '**' ? ANY_NUMBER : parseSegment(segment)))

const PART = /\\(.)|(\*+)|(\?)|\[([!^]?)(\]?[^\]]*)\]|(.)/gsu

const parseSegment = (segment: string): Segment =>
  Array.from(segment.matchAll(PART), ([, escaped, many, any, not, set, plain]) => {
    if (many) return ANY_NUMBER
    if (any) return () => true
    if (set === undefined) return (char) => char === (escaped ?? plain)
    const isIn = charsOf(set)
    return not ? (char) => !isIn(char) : isIn
  })

function charsOf(set: string): CharMatcher {
  const ranges = Array.from(
    set.matchAll(/(.)-(.)|(.)/gsu),
    ([, from, to, one = '']) => [from ?? one, to ?? one] as const,
  )
  return (char) => ranges.some(([from, to]) => from <= char && char <= to)
}
