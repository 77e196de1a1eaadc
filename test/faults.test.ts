import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { beforeAll, describe, expect, inject, test } from 'vitest'
import { withDatabase } from './faults/cluster.ts'
import { MUTANTS } from './faults/mutants.ts'
import { randomPass, STORIES, singlePass } from './faults/passes.ts'
import { createReport, type Report } from './faults/report.ts'

/** `npm run test:faults` runs 2,000 seeds, and crashes, stalls and refusals at every point. */
const SEEDS = 25
const OF_EACH_POINT = 3

describe('whatever happens, no delivery is lost, invented or sent to the wrong endpoint', () => {
  let report: Report
  let places = 0

  beforeAll(async () => {
    report = createReport()
    await withDatabase(inject('adminUrl'), async (ground) => {
      places = await singlePass({ ...ground, report }, ['kill'], { ofEach: OF_EACH_POINT })
      const seeds = Array.from({ length: SEEDS }, (_, i) => i + 1)
      await randomPass({ ...ground, report }, seeds)
    })
    // A long timeout: while this test runs, the work that it takes over belongs to no other test of this process.
  }, 600_000)

  test(`a crash at the first places of each point of a small scenario, and ${SEEDS} random ones: every oracle holds`, () => {
    expect(report.violations).toEqual([])
    expect(places).toBeGreaterThan(2 * report.pointCount())
    const stories = Object.keys(STORIES).length
    expect(report.totals).toMatchObject({ runs: 1 + stories + places + SEEDS, lost: 0, phantom: 0, wrongEndpoint: 0 })
  })

  test('a crash happened at every point, before and after its work was done', () => {
    expect(report.unknown()).toEqual([])
    expect(report.unkilled()).toEqual([])
    expect(report.pointCount()).toBe(48)
  })
})

test.each(MUTANTS)('$name: the guard that the mutant removes is found exactly once', ({ file, find }) => {
  const source = readFileSync(fileURLToPath(new URL(`../${file}`, import.meta.url)), 'utf8')
  expect(source.split(find)).toHaveLength(2)
})

test.each(['run', 'mutate', 'kill', 'fleet'])('%s of `npm run test:faults` loads without a bundler', (name) => {
  const path = fileURLToPath(new URL(`faults/${name}.ts`, import.meta.url))
  const { status, stderr } = spawnSync(process.execPath, [path, '--help'], { encoding: 'utf8' })
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
})
