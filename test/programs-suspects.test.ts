import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { holderOf, takeLane } from '../src/programs/lane.ts'
import {
  blame,
  clear,
  forgive,
  isAlone,
  isBarred,
  isSuspectAgain,
  isWatched,
  lift,
  noteCall,
  noteEnd,
} from '../src/programs/suspects.ts'
import { functionAddressOf } from '../src/runtime/address.ts'

const REF = 'abcdefghijklmnopqrst'
let n = 0
const newProgram = (ref = REF) => `function ${ref}/f${n++}`

beforeEach(() => void vi.useFakeTimers())
afterEach(() => {
  // Nobody is remembered for longer.
  vi.advanceTimersByTime(24 * 3_600_000)
  noteEnd()
  vi.useRealTimers()
})

function answered(program: string): string {
  noteCall(program)()
  return program
}

describe('who is watched after the process has ended', () => {
  it('was under way, or had answered in the last half minute', () => {
    const [before, lately, running] = [newProgram(), newProgram(), newProgram()]
    answered(before)
    vi.advanceTimersByTime(20_000)
    answered(lately)
    vi.advanceTimersByTime(20_000)
    const end = noteCall(running)
    noteEnd()
    expect([before, lately, running].map(isWatched)).toEqual([false, true, true])
    end()
    vi.advanceTimersByTime(60_000)
    expect(isWatched(running)).toBe(false)
  })

  it('had a socket opened minutes ago, whatever it answered since', () => {
    const program = newProgram()
    noteCall(program)('socket')
    answered(program)
    vi.advanceTimersByTime(300_000)
    noteEnd()
    expect(isWatched(program)).toBe(true)
  })

  it('is nobody for whom no program ran', () => {
    const program = newProgram()
    noteCall(program)('not run')
    noteEnd()
    expect(isWatched(program)).toBe(false)
  })

  it('is nobody whose call was dropped without a word', () => {
    const program = newProgram()
    noteCall(program)
    vi.advanceTimersByTime(600_001)
    noteEnd()
    expect(isWatched(program)).toBe(false)
    expect(isAlone(newProgram(), Date.now())).toBe(true)
  })

  it('are the last 20,000, whoever else is called', () => {
    const victim = answered(newProgram())
    for (let i = 0; i < 20_001; i += 1) answered(newProgram())
    const last = answered(newProgram())
    noteEnd()
    expect([victim, last].map(isWatched)).toEqual([false, true])
  })
})

describe('who is called no more', () => {
  it('was alone as the process ended', () => {
    const program = newProgram()
    expect(blame(program, true)).toBe(true)
    expect(isBarred(program)).toBe(true)
    vi.advanceTimersByTime(60_000)
    expect([isBarred(program), isWatched(program)]).toEqual([false, true])
    blame(program, true)
    vi.advanceTimersByTime(119_000)
    expect(isBarred(program)).toBe(true)
  })

  it('was there twice beside others, and not once', () => {
    const program = newProgram()
    expect(blame(program, false)).toBe(false)
    expect([isBarred(program), isWatched(program)]).toEqual([false, true])
    expect(blame(program, false)).toBe(true)
  })

  it('is forgiven for the first times by a change, always by new code, and in the end by time', () => {
    const [program, other] = [newProgram(), newProgram('z'.repeat(20))]
    for (let times = 0; times < 3; times += 1) blame(program, true)
    blame(other, true)
    forgive(REF)
    expect([isBarred(program), isBarred(other)]).toEqual([false, true])
    blame(program, true)
    forgive(REF)
    expect(isBarred(program)).toBe(true)
    lift(program)
    expect(isBarred(program)).toBe(false)
    vi.advanceTimersByTime(600_001)
    blame(program, true)
    vi.advanceTimersByTime(60_000)
    expect(isBarred(program)).toBe(false)
  })

  it('is judged by those who ran beside it since', () => {
    const [program, other] = [newProgram(), newProgram()]
    const since = Date.now() + 1
    answered(other)
    expect(isAlone(program, since)).toBe(true)
    vi.advanceTimersByTime(5)
    const end = noteCall(other)
    expect(isAlone(program, since)).toBe(false)
    end()
    expect(isAlone(program, since)).toBe(false)
    expect(isAlone(other, since)).toBe(true)
  })

  it('is looked at for longer who was there again', () => {
    const program = newProgram()
    noteCall(program)
    noteEnd()
    clear(program)
    expect([isWatched(program), isSuspectAgain(program)]).toEqual([false, false])
    noteEnd()
    expect(isSuspectAgain(program)).toBe(true)
  })
})

describe('the lane', () => {
  const inLane = (chain = crypto.randomUUID()) => takeLane({ program: newProgram(), chain })

  it('knows what the one in it has led to, until it is left', async () => {
    const [program, chain] = [newProgram(), crypto.randomUUID()]
    const leave = await takeLane({ program, chain })
    expect([holderOf(chain), holderOf(crypto.randomUUID())]).toEqual([program, undefined])
    leave?.()
    expect(holderOf(chain)).toBeUndefined()
  })

  it('has one at a time, in their order, and is left once', async () => {
    const order: string[] = []
    const first = await inLane()
    const [second, third] = ['second', 'third'].map(async (name) => {
      const leave = await inLane()
      order.push(name)
      return leave
    })
    expect(order).toEqual([])
    expect(first?.()).toBe(true)
    expect(first?.()).toBe(false)
    const leave = await second
    expect(order).toEqual(['second'])
    leave?.()
    expect((await third)?.()).toBe(true)
    expect(order).toEqual(['second', 'third'])
  })

  it('is waited for ten seconds at most, and who gave up holds up nobody', async () => {
    const first = await inLane()
    const late = inLane()
    await vi.advanceTimersByTimeAsync(10_000)
    expect(await late).toBeUndefined()
    const next = inLane()
    first?.()
    expect((await next)?.()).toBe(true)
  })

  it('goes on without one who never leaves', async () => {
    const lost = await inLane()
    vi.advanceTimersByTime(30_000)
    const next = await inLane()
    expect(lost?.()).toBe(false)
    expect(next?.()).toBe(true)
  })
})

it('a path with a longer name than any slug names no function', () => {
  const addressOf = (slug: string) => {
    const path = `/functions/v1/${slug}/x`
    return functionAddressOf(new URL(`http://localhost${path}`), { ref: REF, path })?.slug
  }
  expect(addressOf('a'.repeat(128))).toBe('a'.repeat(128))
  expect(addressOf('a'.repeat(129))).toBeUndefined()
})
