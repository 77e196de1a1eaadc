import { fileURLToPath } from 'node:url'
import config from '../vitest.config.ts'
import { mutantToTry, withoutGuard } from './mutants.ts'

const mutant = mutantToTry()
const path = mutant && fileURLToPath(new URL(`../../${mutant.file}`, import.meta.url))

/** Makes the tests load the source with one guard removed. */
export default {
  ...config,
  // The cache would give one mutant the modules of another.
  test: { ...config.test, fsModuleCache: false },
  plugins: [
    {
      name: 'mutate',
      enforce: 'pre' as const,
      transform: (source: string, id: string) => (mutant && id === path ? withoutGuard(mutant, source) : undefined),
    },
  ],
}
