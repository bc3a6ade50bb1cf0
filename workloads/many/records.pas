{ Nested procedures, exceptions, strings, a class. }
program records;
{$mode objfpc}
uses sysutils;
type
  TShape = class
    function Area(Depth: integer): integer; virtual;
  end;
function TShape.Area(Depth: integer): integer;
begin
  if Depth = 0 then Result := 1 else Result := Area(Depth - 1) * 2 + Depth;
end;
function Fib(n: integer): integer;
begin
  if n < 2 then Result := n else Result := Fib(n - 1) + Fib(n - 2);
end;
var
  total, i: longint;
  shape: TShape;
procedure Outer(n: integer);
  procedure Inner(depth: integer);
  begin
    total := total + n + depth;
    if depth > 0 then Inner(depth - 1) else raise Exception.Create('bottom ' + IntToStr(n));
  end;
begin
  try
    Inner(4);
  except
    on e: Exception do total := total + Length(e.Message);
  end;
end;
begin
  shape := TShape.Create;
  for i := 1 to 40 do
  begin
    Outer(i);
    total := total + shape.Area(6) + Fib(8);
  end;
  shape.Free;
  writeln(total);
end.
