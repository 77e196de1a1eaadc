import { registerHooks } from 'node:module'
import { fileURLToPath } from 'node:url'
import { MUTANTS } from './mutants.ts'

/** Loads the source with one guard taken away: which one, the environment says. */
const mutant = MUTANTS.find(({ name }) => name === process.env.FAULTS_MUTANT)
if (!mutant) throw new Error(`no mutant ${process.env.FAULTS_MUTANT}`)
const { file, find, replace } = mutant
const url = new URL(`../../${file}`, import.meta.url).href

registerHooks({
  load(loaded, context, next) {
    const result = next(loaded, context)
    if (loaded !== url) return result
    const source = String(result.source)
    if (!source.includes(find)) throw new Error(`${fileURLToPath(url)} no longer holds: ${find}`)
    return { ...result, source: source.replace(find, () => replace) }
  },
})
