import { describe, expect, test } from 'vitest'
import { engineContract } from './contract.ts'
import { type NeonUnderTest, startNeonEngine } from './neon-engine.ts'

describe('the driver neon', () => {
  let neon: NeonUnderTest
  engineContract(async () => {
    neon = await startNeonEngine()
    return neon
  })
  test('sends only requests that match what Neon publishes, in all of these tests', () => {
    expect(neon.server.calls.length).toBeGreaterThan(0)
    expect(neon.server.violations).toEqual([])
  })
})
