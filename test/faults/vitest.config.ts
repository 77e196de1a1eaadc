import { globSync, readFileSync } from 'node:fs'
import config from '../vitest.config.ts'

process.env.EXTENDED = 'on'

const hasExtendedTests = (file: string) => readFileSync(file, 'utf8').includes('/extended.ts')

/**
 * Runs the tests of crashes, stalls and refusals at each single place, and those that need npm's registry or a
 * cluster for each project: too much for each run of the suite.
 */
export default {
  ...config,
  test: { ...config.test, include: ['test/**/*.faults.ts', ...globSync('test/**/*.test.ts').filter(hasExtendedTests)] },
}
