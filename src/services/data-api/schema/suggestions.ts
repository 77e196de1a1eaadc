const GRAM_SIZES = [3, 2] as const
const SIMILARITY_MIN = 0.33
/** Limits for the work of a request, which may come from anybody. PostgREST has the first for tables. */
const CANDIDATES_MAX = 500
const LENGTH_MAX = 200

/** The name most similar to a misspelt one, if any is similar enough. Too many or too long names are not compared. */
export function suggest(names: Iterable<string>, wanted: string): string | undefined {
  if (wanted.length > LENGTH_MAX) return undefined
  const distinct = new Set<string>()
  for (const name of names) if (distinct.add(name).size > CANDIDATES_MAX) return undefined
  const candidates = [...distinct].filter((name) => name.length <= LENGTH_MAX && hasSimilarLength(name, wanted))
  if (candidates.length === 0) return undefined
  for (const size of GRAM_SIZES) {
    const own = gramsOf(wanted, size)
    const near = candidates.filter((name) => sharesGram(own, gramsOf(name, size)))
    if (near.length === 0) continue
    const [best] = near
      .map((name) => ({ name, similarity: similarityOf(name.toLowerCase(), wanted.toLowerCase()) }))
      .sort((a, b) => b.similarity - a.similarity)
    if (best && best.similarity >= SIMILARITY_MIN) return best.name
  }
  return undefined
}

/** Texts are at most as similar as their lengths. */
const hasSimilarLength = (a: string, b: string): boolean =>
  Math.min(a.length, b.length) >= SIMILARITY_MIN * Math.max(a.length, b.length)

function gramsOf(text: string, size: number): Set<string> {
  const padded = `-${text.toLowerCase()}-`
  return new Set(Array.from({ length: Math.max(1, padded.length - size + 1) }, (_, at) => padded.slice(at, at + size)))
}

function sharesGram(a: ReadonlySet<string>, b: ReadonlySet<string>): boolean {
  for (const gram of a) if (b.has(gram)) return true
  return false
}

/** One minus the edit distance divided by the length of the longer text. */
function similarityOf(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index)
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i]
    for (let j = 1; j <= b.length; j += 1) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1)
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1))
    }
    row = next
  }
  const longest = Math.max(a.length, b.length)
  return longest === 0 ? 1 : 1 - (row[b.length] ?? 0) / longest
}
