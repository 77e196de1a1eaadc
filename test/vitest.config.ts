import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'
import { FlakyTests } from './support/flaky-tests.ts'
import { WAIT_MS } from './support/wait.ts'

/**
 * Small files that take long. They start first: files start in the order of their size, so each would run alone at
 * the end.
 */
const LONG = ['engine/contract-host', 'faults', 'engine/diff', 'management/database/sql-memory', 'host/sql-bounds']

class LongFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isLong = ({ moduleId }: TestSpecification) => LONG.some((name) => moduleId.endsWith(`/test/${name}.test.ts`))
    const sorted = await super.sort(files)
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))]
  }
}

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/global-setup.ts'],
    // A busy machine may give a test no time for minutes; a test that hangs must still end.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    // A busy machine may exceed a limit of seconds in one of 10,000 tests; the run names it.
    retry: 1,
    reporters: [new FlakyTests(), 'default'],
    expect: { poll: { timeout: WAIT_MS } },
    // Tests share only the state that a file makes itself. Loading all modules anew for each file would cost a second
    // each.
    isolate: false,
    // More workers than the cores of CI, because some tests wait for clusters and schedules.
    maxWorkers: 4,
    sequence: { sequencer: LongFirst },
  },
})
