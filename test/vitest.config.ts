import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

/** Small files that take long: begun last, as files are begun by their size, each would run alone in the end. */
const LONG = ['engine/contract-host', 'faults', 'engine/diff']

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
    // A machine that is shared may give no time for minutes; what hangs is ended all the same.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: 60_000 } },
    // Tests share no state but what a file makes itself: to load all modules anew for each file would cost a second of each.
    isolate: false,
    // More than the cores of CI, as some wait for clusters and schedules.
    maxWorkers: 4,
    sequence: { sequencer: LongFirst },
  },
})
