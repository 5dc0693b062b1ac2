// New candidates from others: what evolves in a round.
#pragma once

#include "scheduler/population.h"
#include "scheduler/search/proposals.h"
#include "scheduler/search/ranking.h"
#include "scheduler/search/round.h"

namespace diapason {

// Adds one generation (from 1 on) to the population and evaluates it: as many children as EvolutionOptions::population,
// by mutation and crossover of candidates that are drawn by their scores. Nothing when no candidate is legal.
SearchStats AddChildren(const SearchRound& round, int generation, Population* population);

// Adds up to `count` mutants of the best measured candidates, changed in one parameter or two and never proposed
// before, whatever the model thinks of them: a model that is trained on what it chose itself never learns that it is
// wrong elsewhere. Every second one is of a space by itself, since the best of all are soon of one space, and what
// another space could do with more trials is never seen. Nothing when nothing ran.
SearchStats AddMutants(const SearchRound& round, int count, const Ranking& ranking, const Proposals& proposals,
                       Population* population);

}  // namespace diapason
