import { registerHooks } from 'node:module'
import { mutantToTry, withoutGuard } from './mutants.ts'

/** Makes Node load the source with one guard removed. */
const mutant = mutantToTry()
if (!mutant) throw new Error(`no mutant ${process.env.FAULTS_MUTANT}`)
const url = new URL(`../../${mutant.file}`, import.meta.url).href

registerHooks({
  load(loaded, context, next) {
    const result = next(loaded, context)
    return loaded === url ? { ...result, source: withoutGuard(mutant, String(result.source)) } : result
  },
})
