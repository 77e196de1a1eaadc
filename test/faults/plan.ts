import type { Random } from './random.ts'

export type Phase = 'before' | 'after'
/**
 * kill: the instance ends. fail: the call ends in an error, before it was done or after (its answer was lost). delay:
 * late by up to a minute. forget: another instance replaces it while it continues. stall: the same, and its messages
 * are held back for 40 s.
 */
export type Fault = 'kill' | 'fail' | 'delay' | 'forget' | 'stall'

interface Place {
  point: string
  phase: Phase
  instance: string
  /** Milliseconds since the simulation started. */
  at: number
}

/** The faults and the durations of a simulation. */
export interface Plan {
  fault(place: Place): Fault | undefined
  latencyMs(random: Random): number
  delayMs(random: Random): number
}

const steady = {
  latencyMs: () => 2,
  delayMs: () => 12_000,
}

export const calm: Plan = { ...steady, fault: () => undefined }

/** Injects no fault, and records which of all places are at which point. */
export function recorded(): { plan: Plan; places: Map<string, number[]> } {
  const places = new Map<string, number[]>()
  let count = 0
  const fault = ({ point, phase }: Place) => {
    const name = `${point} ${phase}`
    places.set(name, [...(places.get(name) ?? []), count++])
    return undefined
  }
  return { plan: { ...steady, fault }, places }
}

/** Injects one fault, at the place with this index. */
export function single(index: number, fault: Fault): Plan {
  let places = 0
  return { ...steady, fault: () => (places++ === index ? fault : undefined) }
}

interface When {
  phase: Phase
  /** The instances, by the start of their names. */
  of?: string
  skip?: number
  times?: number
  fromMs?: number
  untilMs?: number
}

/** Injects a fault at a point, `times` times after `skip` others, in a span of time. */
export function atPoint(point: string, fault: Fault, when: When): Plan {
  const {
    phase,
    of = '',
    skip = 0,
    times = Number.POSITIVE_INFINITY,
    fromMs = 0,
    untilMs = Number.POSITIVE_INFINITY,
  } = when
  let met = 0
  return {
    ...steady,
    fault: (place) => {
      if (!place.point.startsWith(point) || place.phase !== phase || !place.instance.startsWith(of)) return undefined
      if (place.at < fromMs || place.at >= untilMs) return undefined
      const index = met++
      return index >= skip && index < skip + times ? fault : undefined
    },
  }
}

export const together = (...plans: Plan[]): Plan => ({
  ...steady,
  fault: (place) => plans.reduce<Fault | undefined>((found, plan) => plan.fault(place) ?? found, undefined),
})

const FAULTS: Fault[] = ['kill', 'kill', 'fail', 'fail', 'delay', 'forget', 'stall']
const OUTAGES = ['database', 'queue', 'wake', 'object', 'alarm', 'post', 'resolve', 'transaction']

/**
 * Injects faults anywhere with a probability that the seed decides, and at times makes a part of the world
 * unreachable.
 */
export function chaos(random: Random, { untilMs }: { untilMs: number }): Plan {
  const probability = random.pick([0, 0.01, 0.03, 0.08, 0.15])
  const slowness = random.pick([1, 1, 5, 50])
  const outages = Array.from({ length: random.whole(0, 2) }, () => {
    const from = random.whole(0, untilMs)
    return { part: random.pick(OUTAGES), from, until: Math.min(untilMs, from + random.whole(1_000, 60_000)) }
  })
  return {
    fault({ point, phase, at }) {
      if (at >= untilMs) return undefined
      if (outages.some(({ part, from, until }) => point.startsWith(part) && at >= from && at < until)) return 'fail'
      return random.chance(probability) ? anyFault(random, point, phase) : undefined
    },
    latencyMs: (of) => of.whole(0, 10 * slowness),
    delayMs: anyDelayMs,
  }
}

function anyFault(random: Random, point: string, phase: Phase): Fault {
  return phase === 'after' && point === 'post' && random.chance(0.5) ? 'kill' : random.pick(FAULTS)
}

const anyDelayMs = (random: Random) => random.pick([500, 5_000, 12_000, 25_000, 40_000, 60_000])

const OUTAGE_MS = 30_000

/**
 * Injects faults forever, from a moment on: the share applies to the calls that fail or are slow, and to the time in
 * which a part of the world is unreachable.
 */
export function lasting(random: Random, { share, fromMs }: { share: number; fromMs: number }): Plan {
  let away = { part: '', from: fromMs, until: fromMs }
  return {
    fault({ point, phase, at }) {
      if (at < fromMs) return undefined
      if (at >= away.until) {
        const from = away.until + random.whole(0, (2 * OUTAGE_MS * (1 - share)) / share)
        away = { part: random.pick(OUTAGES), from, until: from + OUTAGE_MS }
      }
      if (point.startsWith(away.part) && at >= away.from) return 'fail'
      // A call may fail in either of its phases.
      return random.chance(share / 2) ? anyFault(random, point, phase) : undefined
    },
    latencyMs: (of) => of.whole(0, of.chance(share) ? 500 : 10),
    delayMs: anyDelayMs,
  }
}
